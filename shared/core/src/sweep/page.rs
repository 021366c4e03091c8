//! A run's report as one page for a browser: what was decided, by reason and by folder. Nothing is loaded from elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::guards::Reason;
use super::items::{Folder, RunRecord, Tally};

/// Where the page lies in the run's folder.
pub const PAGE_NAME: &str = "report.html";

const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1d2430;--soft:#5b6675;--line:#d8dee6;--back:#fff;--keep:#4a7fb5;--go:#c8553d}\
@media(prefers-color-scheme:dark){:root{--text:#e6e9ee;--soft:#9aa5b1;--line:#39424e;--back:#14181d;--keep:#6fa3d8;--go:#e0795f}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:62rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{margin:.3rem 0}.soft{color:var(--soft)}\
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}td.key{overflow-wrap:anywhere}\
svg{display:block;width:100%;height:.8rem}.keep{fill:var(--keep)}.go{fill:var(--go)}.key-keep{color:var(--keep)}.key-go{color:var(--go)}";

/// Text inside an element or an attribute.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // A browser would take them as something else, or as nothing.
            letter if letter.is_control() => {
                let _ = write!(escaped, "\\u{{{:x}}}", u32::from(letter));
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// `1.5 GiB`.
fn bytes(size_bytes: i64) -> String {
    let mut size = size_bytes.max(0) as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if size < 1024.0 {
            return if unit == "B" { format!("{size:.0} B") } else { format!("{size:.1} {unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.1} PiB")
}

/// `1,234,567`.
fn number(count: i64) -> String {
    let digits = count.max(0).to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A bar of two parts, each in thousandths of the whole width.
fn bar(keep: i64, go: i64, whole: i64) -> String {
    let share = |part: i64| {
        if whole <= 0 { 0 } else { (i128::from(part.max(0)) * 1000 / i128::from(whole)) as i64 }
    };
    // What is there at all is seen.
    let wide = |part: i64| if part > 0 { share(part).max(2) } else { 0 };
    let (keep_width, go_width) = (wide(keep), wide(go));
    format!(
        "<svg viewBox=\"0 0 1004 10\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{} kept, {} not needed\">\
         <rect class=\"keep\" width=\"{keep_width}\" height=\"10\"/>\
         <rect class=\"go\" x=\"{keep_width}\" width=\"{go_width}\" height=\"10\"/></svg>",
        bytes(keep),
        bytes(go)
    )
}

fn reason_named(name: &str) -> Option<Reason> {
    Reason::ALL.into_iter().find(|reason| reason.as_str() == name)
}

fn by_reason(html: &mut String, run: &RunRecord) {
    let whole = run.totals.by_reason.values().map(|tally| tally.size_bytes).max().unwrap_or(0);
    html.push_str(
        "<h2>By reason</h2><table id=\"reasons\"><thead><tr><th>Reason</th><th>What it means</th><th class=\"n\">Objects\
         </th><th class=\"n\">Size</th><th style=\"width:30%\"></th></tr></thead><tbody>",
    );
    let mut rows: Vec<(&String, &Tally)> = run.totals.by_reason.iter().collect();
    rows.sort_by_key(|(name, tally)| (std::cmp::Reverse(tally.size_bytes), (*name).clone()));
    for (name, tally) in rows {
        let reason = reason_named(name);
        let goes = reason.is_some_and(|reason| !reason.is_kept());
        let (keep, go) = if goes { (0, tally.size_bytes) } else { (tally.size_bytes, 0) };
        let _ = write!(
            html,
            "<tr><td>{}</td><td class=\"soft\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            escaped(name),
            escaped(reason.map_or("", Reason::explain)),
            number(tally.count),
            bytes(tally.size_bytes),
            bar(keep, go, whole)
        );
    }
    html.push_str("</tbody></table>");
}

fn by_folder(html: &mut String, folders: &BTreeMap<String, Folder>) {
    if folders.is_empty() {
        return;
    }
    let whole =
        folders.values().map(|folder| folder.kept.size_bytes.saturating_add(folder.not_needed.size_bytes)).max();
    html.push_str(
        "<h2>By folder</h2><p class=\"soft\"><span class=\"key-keep\">&#9632;</span> kept, <span class=\"key-go\">\
         &#9632;</span> not needed</p><table id=\"folders\"><thead><tr><th>Folder</th><th class=\"n\">Kept</th>\
         <th class=\"n\">Not needed</th><th style=\"width:40%\"></th></tr></thead><tbody>",
    );
    for (name, folder) in folders {
        let _ = write!(
            html,
            "<tr><td class=\"key\">{}</td><td class=\"n\">{} ({})</td><td class=\"n\">{} ({})</td><td>{}</td></tr>",
            escaped(name),
            bytes(folder.kept.size_bytes),
            number(folder.kept.count),
            bytes(folder.not_needed.size_bytes),
            number(folder.not_needed.count),
            bar(folder.kept.size_bytes, folder.not_needed.size_bytes, whole.unwrap_or(0))
        );
    }
    html.push_str("</tbody></table>");
}

fn outcomes(html: &mut String, run: &RunRecord) {
    html.push_str("<h2>What became of the orphans</h2>");
    if run.mode == super::Mode::DryRun {
        html.push_str("<p>A dry run deletes nothing.</p>");
        return;
    }
    html.push_str(
        "<table id=\"outcomes\"><thead><tr><th>Outcome</th><th class=\"n\">Objects</th><th class=\"n\">Size</th></tr></thead><tbody>",
    );
    let deleted = [("deleted", &run.totals.deleted)];
    let spared = run.totals.spared.iter().map(|(name, tally)| (name.as_str(), tally));
    for (name, tally) in deleted.into_iter().chain(spared) {
        let _ = write!(
            html,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escaped(name),
            number(tally.count),
            bytes(tally.size_bytes)
        );
    }
    html.push_str("</tbody></table>");
}

fn facts(html: &mut String, run: &RunRecord) {
    let mut row = |name: &str, value: String| {
        let _ = write!(html, "<tr><th>{name}</th><td class=\"key\">{}</td></tr>", escaped(&value));
    };
    row("Run", run.run_id.clone());
    row("Mode", run.mode.as_str().replace('_', " "));
    row("Swept", run.facts.scope.clone().unwrap_or_default());
    row("Judged by", run.pointer.clone().unwrap_or_default());
    if let Some(retention_ms) = run.facts.retention_ms {
        row("Retention", format!("{} hours", retention_ms / 3_600_000));
    }
    if let Some((ended_ms, started_ms)) = run.ended_ms.zip(run.started_ms) {
        row("Took", format!("{} s in {} slices", ended_ms.saturating_sub(started_ms) / 1000, run.attempts));
    }
    for finding in &run.facts.findings {
        row("Finding", finding.clone());
    }
}

/// The page of a run that has ended.
pub fn render(run: &RunRecord, folders: &BTreeMap<String, Folder>) -> String {
    let table = escaped(&format!("{}.{}", run.database, run.table));
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>Sweep of {table}</title><style>{STYLE}</style></head><body>\
         <h1>Sweep of {table}</h1><p class=\"soft\">{}</p>",
        escaped(run.state.as_str())
    );
    if let Some(error) = &run.error {
        let _ = write!(html, "<p><strong>{}</strong></p>", escaped(error));
    }
    html.push_str("<h2>The run</h2><table id=\"facts\"><tbody>");
    facts(&mut html, run);
    html.push_str("</tbody></table>");
    by_reason(&mut html, run);
    by_folder(&mut html, folders);
    outcomes(&mut html, run);
    html.push_str("</body></html>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_are_readable() {
        let sizes = [0, 1023, 1024, 1_572_864, i64::MAX].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "8192.0 PiB"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn names_are_text_and_nothing_else() {
        assert_eq!(escaped("<b a=\"x'\">&\u{1}"), "&lt;b a=&quot;x&#39;&quot;&gt;&amp;\\u{1}");
    }

    #[test]
    fn bars_stay_inside_and_what_is_there_is_seen() {
        assert!(bar(0, 0, 0).contains("class=\"keep\" width=\"0\""));
        let tiny = bar(i64::MAX - 1, 1, i64::MAX);
        assert!(tiny.contains("width=\"999\"") && tiny.contains("x=\"999\" width=\"2\""), "{tiny}");
    }
}
