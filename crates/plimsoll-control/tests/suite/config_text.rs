//! Robustness of the parser of configuration files, with the interpreter of the fuzz target. Fields
//! are tested in `config`.

use crate::support::config_text::run;

#[test]
fn damaged_files_are_refused_with_a_reason() {
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/control/control.yaml"
    );
    let text = std::fs::read_to_string(example).unwrap();
    assert!(run(text.as_bytes()));
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut accepted = 0;
    for index in 0..lines.len() {
        let mut rest = lines.clone();
        rest.remove(index);
        let mut doubled = lines.clone();
        doubled.insert(index, lines[index]);
        let mut cut = lines[..index].concat();
        cut.push_str(&lines[index][..lines[index].len() / 2]);
        for damaged in [rest.concat(), doubled.concat(), cut] {
            accepted += usize::from(run(damaged.as_bytes()));
        }
    }
    assert!(accepted < 3 * lines.len(), "some are refused");
}

#[test]
fn aliases_do_not_multiply() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        let list = vec![alias; 9].join(", ");
        text += &format!("a{level}: &a{level} [{list}]\n");
    }
    let used = allocation_counter::measure(|| {
        assert!(!run(text.as_bytes()));
    });
    assert!(used.bytes_max < 32 << 20, "{}", used.bytes_max);
}
