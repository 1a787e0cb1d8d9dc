//! The report as one page: no script, no other file, light or dark as the reader likes it.
//!
//! Here lives the order of the page; `summary` makes its table, `panels` its charts, `prose` the
//! sentences that say what a chart shows, `svg` draws, `style` is the style sheet.

mod panels;
mod prose;
mod style;
mod summary;
mod svg;

use std::fmt::Write as _;

use super::{Facts, Report};

impl Report {
    /// A self-contained page with a table, charts over time, and what they show in words.
    pub fn html(&self) -> String {
        let mut page = String::new();
        let title = escape(&self.facts.title);
        let _ = write!(
            page,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n",
            style::CSS
        );
        header(&self.facts, &mut page);
        summary::section(self, &mut page);
        panels::sections(self, &mut page);
        checks(self, &mut page);
        endings(self, &mut page);
        footer(&self.facts, &mut page);
        page.push_str("</main>\n</body>\n</html>\n");
        page
    }
}

fn header(facts: &Facts, page: &mut String) {
    let _ = writeln!(page, "<header>\n<h1>{}</h1>", escape(&facts.title));
    let _ = writeln!(page, "<p class=\"facts\">{}</p>", escape(&facts.in_words()));
    for paragraph in facts
        .description
        .split("\n\n")
        .filter(|text| !text.trim().is_empty())
    {
        let _ = writeln!(page, "<p class=\"lead\">{}</p>", escape(paragraph.trim()));
    }
    if !facts.events.is_empty() {
        page.push_str("<ol class=\"events\">\n");
        for (number, (at, what)) in facts.events.iter().enumerate() {
            let (mark, what) = (number + 1, escape(what));
            let _ = writeln!(page, "<li><b>{mark}</b> {at} s: {what}</li>");
        }
        page.push_str("</ol>\n");
    }
    for note in &facts.notes {
        let _ = writeln!(page, "<p class=\"note\">Simplified: {}.</p>", escape(note));
    }
    page.push_str("</header>\n");
}

fn checks(report: &Report, page: &mut String) {
    if report.checks.is_empty() {
        return;
    }
    let failed = report.checks.iter().filter(|check| !check.passed).count();
    let verdict = match failed {
        0 => "All bounds of this scenario hold.".to_owned(),
        1 => "One bound of this scenario does not hold.".to_owned(),
        more => format!("{more} bounds of this scenario do not hold."),
    };
    let open = if failed > 0 { " open" } else { "" };
    let _ = writeln!(page, "<section>\n<h2>Checks</h2>\n<p>{verdict}</p>");
    let _ = writeln!(
        page,
        "<details{open}><summary>Every bound</summary>\n<table class=\"checks\">"
    );
    for check in &report.checks {
        let (class, word) = if check.passed {
            ("good", "holds")
        } else {
            ("bad", "fails")
        };
        let found = check
            .found
            .map_or("none".to_owned(), |found| format!("{found:.4}"));
        let (policy, text) = (check.policy.name(), escape(&check.text));
        let _ = writeln!(
            page,
            "<tr><td class=\"{class}\">{word}</td><td>{policy}</td><td>{text}</td>\
             <td>found {found}</td></tr>"
        );
    }
    page.push_str("</table></details>\n</section>\n");
}

/// How proxies route at the end, in the engine's own words.
fn endings(report: &Report, page: &mut String) {
    let told = || {
        report
            .policies
            .iter()
            .filter(|policy| !policy.endings.is_empty())
    };
    if told().next().is_none() {
        return;
    }
    page.push_str(
        "<section>\n<h2>Why they route as they do</h2>\n<p>What the first proxy of each zone says \
         about itself at the end of the run (the words of <code>plimsoll explain</code>).</p>\n",
    );
    for policy in told() {
        let name = policy.policy.name();
        let _ = writeln!(
            page,
            "<details><summary>{name}</summary>\n<table class=\"checks\">"
        );
        for (zone, reason) in &policy.endings {
            let (zone, reason) = (escape(zone), escape(reason));
            let _ = writeln!(page, "<tr><td>{zone}</td><td>{reason}</td></tr>");
        }
        page.push_str("</table></details>\n");
    }
    page.push_str("</section>\n");
}

fn footer(facts: &Facts, page: &mut String) {
    let _ = writeln!(
        page,
        "<footer><p>Utilization is the requests per second sent to a zone ÷ what its usable hosts \
         can serve. Max/mean is the highest zone's utilization ÷ that of all hosts together: 1.00 \
         is even. 1 s are sliding means over one second, 5 s trailing means over five. Averages, \
         peaks and latencies count from {} s on, the rest over the whole run. Needed is the least \
         share of traffic between zones at which all zones are equally loaded. Settled is the time \
         after the last step until the 5 s max/mean stays at or below 1.12.</p>\
         <p>plimsoll sim, seed {}. The same scenario and seed give the same page, byte for byte.\
         </p></footer>",
        facts.measured_from_s, facts.seed
    );
}

/// Text as it may stand in a page.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_stands_alone_and_closes_what_it_opens() {
        let page = crate::report::tests::report().html();
        for foreign in [
            "http:", "https:", "<script", "<link", "src=", "url(", "@import",
        ] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        for tag in [
            "main", "section", "table", "details", "svg", "figure", "p", "ol", "div",
        ] {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            let closed = page.matches(&format!("</{tag}>")).count();
            assert_eq!(opened, closed, "<{tag}>");
        }
        assert!(
            !page.contains("NaN") && !page.contains("inf"),
            "no number without a value"
        );
    }

    #[test]
    fn names_from_the_scenario_cannot_write_markup() {
        let page = crate::report::tests::report().html();
        assert!(page.contains("nothing of &lt;demand&gt;."));
        assert_eq!(escape("a\"b&c"), "a&quot;b&amp;c");
    }

    #[test]
    fn every_policy_has_its_charts_and_every_event_its_mark() {
        let report = crate::report::tests::report();
        let page = report.html();
        // Utilization and cross-zone for both, latency and failures for the simulated one.
        assert_eq!(page.matches("<svg").count(), 2 + 2 + 1 + 1);
        assert!(page.contains("<b>1</b> 20 s: demand of b × 1.1"));
        assert!(page.contains("One bound of this scenario does not hold."));
    }

    #[test]
    fn same_seed_same_bytes() {
        let page = || crate::report::tests::report().html();
        assert_eq!(page(), page());
    }
}
