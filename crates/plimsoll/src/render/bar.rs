//! Bars of block characters with a resolution of an eighth of a cell.

/// Number of cells on each side of the load line.
const HALF: usize = 8;
const BLOCKS: [char; 8] = ['·', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Draws a share of 0.0 to 1.0 as a bar of `cells`.
pub(super) fn share(share: f64, cells: usize) -> String {
    let mut bar = String::new();
    fill(&mut bar, share * float(cells), cells);
    bar
}

/// Draws a load factor from 0 to 2 with the load line `│` at 1.00; `▶` marks larger values.
pub(super) fn load(factor: f64) -> String {
    let half = float(HALF);
    let mut bar = String::new();
    fill(&mut bar, factor * half, HALF);
    bar.push('│');
    fill(&mut bar, (factor - 1.0) * half, HALF);
    if factor > 2.0 {
        bar.pop();
        bar.push('▶');
    }
    bar
}

/// Fills `cells` up to `length`, rounded to an eighth.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and 8 times a few cells; NaN becomes 0"
)]
fn fill(bar: &mut String, length: f64, cells: usize) {
    let eighths = (length.clamp(0.0, float(cells)) * 8.0).round() as usize;
    for cell in 0..cells {
        bar.push(match eighths.saturating_sub(cell * 8) {
            8.. => '█',
            part => BLOCKS[part],
        });
    }
}

fn float(cells: usize) -> f64 {
    u32::try_from(cells).map_or(0.0, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fill_from_the_left() {
        assert_eq!(share(0.0, 4), "····");
        assert_eq!(share(0.5, 4), "██··");
        assert_eq!(share(1.0, 4), "████");
        assert_eq!(share(0.6, 4), "██▍·");
        assert_eq!(share(7.0, 4), "████", "values above 1 are clamped");
        assert_eq!(share(f64::NAN, 4), "····");
    }

    #[test]
    fn loads_are_drawn_around_the_load_line() {
        assert_eq!(load(0.0), "········│········");
        assert_eq!(load(0.75), "██████··│········");
        assert_eq!(load(1.0), "████████│········");
        assert_eq!(load(1.5), "████████│████····");
        assert_eq!(load(2.0), "████████│████████");
        assert_eq!(load(2.5), "████████│███████▶");
        assert_eq!(load(f64::INFINITY), "████████│███████▶");
    }
}
