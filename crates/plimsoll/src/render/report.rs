//! Report about all services as Markdown or HTML: a row per service. Called by `cmd::report`.

use std::fmt::Write as _;

use plimsoll_admin::zone_loss::{LossFigure, ServiceZoneLoss, ZoneLoss};

/// Form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ReportFormat {
    Markdown,
    Html,
}

const TITLE: &str = "Which zones may be lost";
const HEADS: [&str; 6] = [
    "Service",
    "Requests/s",
    "Fullest zone now",
    "Worst zone to lose",
    "Without it",
    "May be lost",
];

/// Writes the report; services that cannot lose a zone come first.
pub(crate) fn report(services: &[ServiceZoneLoss], source: &str, format: ReportFormat) -> String {
    let mut sorted: Vec<&ServiceZoneLoss> = services.iter().collect();
    let worst = |service: &ServiceZoneLoss| service.worst().map_or(0.0, ZoneLoss::severity);
    sorted.sort_by(|a, b| {
        let exceeds = |service: &ServiceZoneLoss| service.zones.iter().any(|zone| zone.exceeds);
        let by_figure = worst(b).total_cmp(&worst(a));
        exceeds(b)
            .cmp(&exceeds(a))
            .then(by_figure)
            .then(a.cluster.cmp(&b.cluster))
    });
    let rows: Vec<[String; 6]> = sorted.iter().map(|service| row(service)).collect();
    match format {
        ReportFormat::Markdown => markdown(&summary(services, source), &rows),
        ReportFormat::Html => html(&summary(services, source), &rows),
    }
}

fn summary(services: &[ServiceZoneLoss], source: &str) -> String {
    let count =
        |is: &dyn Fn(&ServiceZoneLoss) -> bool| services.iter().filter(|one| is(one)).count();
    let all = services.len();
    let cannot = count(&|one| one.zones.iter().any(|zone| zone.exceeds));
    let unknown = count(&|one| one.capacity_requests_per_second.is_none());
    let limit = services.first().map_or(0.9, |one| one.max_utilization);
    format!(
        "{cannot} of {all} services cannot lose a zone: the fullest of the others would be above \
         {limit:.2}, or none is left. Of {unknown} the capacity is not known; their figures are \
         relative to the load of today. As {source} measured it: clients of the lost zone stay \
         there or move, the worse of both."
    )
}

fn row(service: &ServiceZoneLoss) -> [String; 6] {
    let worst = service.worst();
    let without = worst.map_or_else(String::new, |zone| {
        match (&zone.clients_stay, &zone.clients_move) {
            (Some(stay), Some(moved)) if moved.load > stay.load => figure(moved),
            (Some(stay), Some(_)) => figure(stay),
            _ => "no zone left".to_owned(),
        }
    });
    let is_unknown = service.capacity_requests_per_second.is_none();
    let may = match worst {
        None => "no hosts",
        Some(zone) if zone.exceeds => "no",
        Some(_) if is_unknown => "capacity unknown",
        Some(_) => "yes",
    };
    [
        service.cluster.clone(),
        format!("{:.1}", service.demand_requests_per_second),
        service.now.as_ref().map_or_else(String::new, |now| {
            format!("{} {}", now.fullest, figure(now))
        }),
        worst.map_or_else(String::new, |zone| zone.locality.to_string()),
        without,
        may.to_owned(),
    ]
}

fn figure(figure: &LossFigure) -> String {
    match figure.utilization {
        Some(utilization) => format!("{utilization:.2}"),
        None => format!("× {:.2}", figure.load),
    }
}

fn markdown(summary: &str, rows: &[[String; 6]]) -> String {
    let mut text = format!("# {TITLE}\n\n{summary}\n\n");
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text.push_str(&line(HEADS.map(str::to_owned).to_vec()));
    text.push_str(&line(HEADS.map(|_| "---".to_owned()).to_vec()));
    for row in rows {
        // A name must not end its cell or its row.
        let cells = row
            .iter()
            .map(|cell| cell.replace('|', "\\|").replace(['\n', '\r'], " "));
        text.push_str(&line(cells.collect()));
    }
    text
}

fn html(summary: &str, rows: &[[String; 6]]) -> String {
    let mut body = String::new();
    for row in rows {
        let cells = row.iter().map(|cell| format!("<td>{}</td>", escaped(cell)));
        let class = if row[5] == "no" { " class=\"no\"" } else { "" };
        let _ = writeln!(body, "<tr{class}>{}</tr>", cells.collect::<String>());
    }
    let heads: String = HEADS
        .iter()
        .map(|head| format!("<th scope=\"col\">{head}</th>"))
        .collect();
    let summary = escaped(summary);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'\">\n<title>{TITLE}</title>\n<style>\n\
         body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; \
         padding: 0 1rem; }}\n\
         table {{ border-collapse: collapse; width: 100%; }}\n\
         th, td {{ border-bottom: 1px solid #ccc; padding: .4rem .6rem; text-align: left; }}\n\
         td:nth-child(2) {{ text-align: right; font-variant-numeric: tabular-nums; }}\n\
         .no td:last-child {{ color: #b00020; font-weight: 600; }}\n\
         </style>\n</head>\n<body>\n<h1>{TITLE}</h1>\n<p>{summary}</p>\n\
         <table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</body>\n\
         </html>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::locality::Locality;

    use super::*;

    fn service(name: &str, utilization: Option<f64>, load: f64, exceeds: bool) -> ServiceZoneLoss {
        let figure = LossFigure {
            utilization,
            load,
            fullest: Locality::zone_only("b"),
        };
        ServiceZoneLoss {
            cluster: name.to_owned(),
            demand_requests_per_second: 12.0,
            capacity_requests_per_second: utilization.map(|_| 24.0),
            now: Some(figure.clone()),
            max_utilization: 0.9,
            zones: vec![ZoneLoss {
                locality: Locality::zone_only("a"),
                clients_stay: Some(figure.clone()),
                clients_move: Some(figure),
                exceeds,
                text: String::new(),
            }],
        }
    }

    #[test]
    fn services_that_cannot_lose_a_zone_come_first() {
        let services = [
            service("fine", Some(0.5), 3.0, false),
            service("a|<b>", None, 1.5, false),
            service("full", Some(0.95), 1.5, true),
        ];
        let text = report(&services, "x:1", ReportFormat::Markdown);
        let rows: Vec<&str> = text.lines().skip(6).collect();
        assert_eq!(
            rows,
            [
                "| full | 12.0 | b 0.95 | a | 0.95 | no |",
                "| fine | 12.0 | b 0.50 | a | 0.50 | yes |",
                "| a\\|<b> | 12.0 | b × 1.50 | a | × 1.50 | capacity unknown |",
            ],
            "{text}"
        );
        assert!(
            text.contains("1 of 3 services cannot lose a zone"),
            "{text}"
        );
        let page = report(&services, "x:1", ReportFormat::Html);
        assert!(page.contains("<td>a|&lt;b&gt;</td>"), "{page}");
        assert_eq!(page.matches("<tr").count(), 4);
    }
}
