//! Just enough Markdown to find links and headings: code is left out, both fenced and inline.

/// A link and its line. Line numbers start at 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) line: usize,
    pub(crate) target: String,
}

/// Every link and picture: `](target)`, `src="target"`, `srcset="target"`.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (line, prose) in prose_lines(text) {
        for (opening, closing) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"')] {
            let targets = prose
                .split(opening)
                .skip(1)
                .filter_map(|rest| rest.split_once(closing));
            links.extend(targets.map(|(target, _)| Link {
                line,
                target: target.to_owned(),
            }));
        }
    }
    links
}

/// Anchors of all headings, spelled as code forges do: lower case, blanks to dashes, marks dropped.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut anchors: Vec<String> = Vec::new();
    for line in text.lines() {
        fenced ^= is_fence(line);
        let title = line.trim_start_matches('#');
        if !fenced && title.len() < line.len() && title.starts_with(' ') {
            anchors.push(anchor(title.trim()));
        }
    }
    anchors
}

fn anchor(title: &str) -> String {
    let kept = title
        .chars()
        .filter(|&c| c.is_alphanumeric() || "-_ ".contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c })
        .flat_map(char::to_lowercase)
        .collect()
}

fn is_fence(line: &str) -> bool {
    line.trim_start().starts_with("```")
}

/// Lines outside fences, without what stands between single backticks.
fn prose_lines(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let fence = is_fence(line);
        fenced ^= fence;
        if !fenced && !fence {
            // A pair of backticks encloses every second part. An odd one encloses nothing.
            let parts: Vec<&str> = line.split('`').collect();
            let keeps = |index: usize| index.is_multiple_of(2) || parts.len().is_multiple_of(2);
            let prose: Vec<&str> = parts
                .iter()
                .enumerate()
                .filter(|&(index, _)| keeps(index))
                .map(|(_, part)| *part)
                .collect();
            lines.push((index + 1, prose.join("``")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_pictures_are_found_and_code_is_not() {
        let text = "See [a](a.md) and ![b](pictures/b.svg).\n`[no](no.md)` but [`c`](c.md#x)\n\
                    ```text\n[no](no.md)\n```\n<img src=\"d.svg\"> <source srcset=\"e.svg\">\n";
        let found: Vec<_> = links(text)
            .into_iter()
            .map(|link| (link.line, link.target))
            .collect();
        let expected = [
            (1, "a.md"),
            (1, "pictures/b.svg"),
            (2, "c.md#x"),
            (6, "d.svg"),
            (6, "e.svg"),
        ];
        assert_eq!(
            found,
            expected.map(|(line, target)| (line, target.to_owned()))
        );
    }

    #[test]
    fn an_odd_backtick_hides_nothing() {
        assert_eq!(links("it` is [a](a.md)").len(), 1);
    }

    #[test]
    fn headings_become_anchors() {
        let text = "# The `plimsoll explain` page\n```\n# no\n```\n## A: one, two\n#tag\n";
        assert_eq!(anchors(text), ["the-plimsoll-explain-page", "a-one-two"]);
    }
}
