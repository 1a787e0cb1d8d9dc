//! Suggestions for misspelled names: "did you mean".

/// Returns the reason for refusing a field of this name, with the known name that is most like it,
/// or all of them if none is.
pub(crate) fn unknown_field(name: &str, known: &[&str]) -> String {
    match (nearest(name, known), known) {
        (Some(nearest), _) => format!("unknown field, did you mean {nearest}?"),
        (None, []) => "unknown field, none is expected here".to_owned(),
        (None, known) => format!("unknown field, expected one of {}", known.join(", ")),
    }
}

/// Returns the known name that differs from `name` in at most a third of its letters.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = name.to_lowercase();
    let most = (name.chars().count() / 3).clamp(1, 4);
    let distances = known.iter().map(|&known| (distance(&name, known), known));
    let (distance, nearest) = distances.min_by_key(|&(distance, _)| distance)?;
    (distance <= most && distance < nearest.chars().count()).then_some(nearest)
}

/// Number of letters to insert, remove, replace or swap with their neighbor.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (row, &a) in one.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, &b) in other.iter().enumerate() {
            let replaced = above[column] + usize::from(a != b);
            let mut least = replaced.min(above[column + 1] + 1).min(current[column] + 1);
            let swapped = row > 0 && column > 0 && one[row - 1] == b && a == other[column - 1];
            if swapped {
                least = least.min(before[column - 1] + 1);
            }
            current.push(least);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["connect_timeout", "name", "type", "lb_policy"];

    #[test]
    fn a_typo_suggests_the_field() {
        for typo in [
            "conect_timeout",
            "connect_timout",
            "conncet_timeout",
            "connectTimeout",
        ] {
            assert_eq!(nearest(typo, &KNOWN), Some("connect_timeout"), "{typo}");
        }
        assert_eq!(nearest("nmae", &KNOWN), Some("name"));
        for other in ["timeout", "x", "", "endpoints"] {
            assert_eq!(nearest(other, &KNOWN), None, "{other}");
        }
    }

    #[test]
    fn without_a_likely_field_all_are_listed() {
        assert_eq!(
            unknown_field("weight", &["name", "type"]),
            "unknown field, expected one of name, type"
        );
        assert_eq!(
            unknown_field("typ", &["name", "type"]),
            "unknown field, did you mean type?"
        );
        assert_eq!(
            unknown_field("typ", &[]),
            "unknown field, none is expected here"
        );
    }
}
