//! A run's report as one page for a browser: what was decided, by reason and by folder. Nothing is loaded from elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::guards::Reason;
use super::items::{Folder, RunRecord, Tally};

/// What is counted together when there are too many folders. Names of folders end with a slash, this does not.
pub(super) const OTHER_FOLDERS: &str = "(other folders)";

/// Where the page lies in the run's folder.
pub const PAGE_NAME: &str = "report.html";

const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1d2430;--soft:#5b6675;--line:#d8dee6;--back:#fff;--keep:#4a7fb5;--go:#c8553d}\
@media(prefers-color-scheme:dark){:root{--text:#e6e9ee;--soft:#9aa5b1;--line:#39424e;--back:#14181d;--keep:#6fa3d8;--go:#e0795f}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:62rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem;margin:0;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{margin:.3rem 0;overflow-wrap:anywhere}\
.soft{color:var(--soft)}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}th{white-space:nowrap}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}td.key{overflow-wrap:anywhere}th.bar{width:35%}\
svg{display:block;width:100%;height:.8rem;margin-top:.35rem}.keep{fill:var(--keep)}.go{fill:var(--go)}\
.key-keep{color:var(--keep)}.key-go{color:var(--go)}\
@media(max-width:40rem){.charted thead{display:none}.charted tr{display:grid;grid-template-columns:1fr 1fr;border-bottom:1px solid var(--line)}\
.charted td{border:0;padding:.15rem .3rem}.charted td.key,.charted td.bar{grid-column:1/-1}.charted td.n{text-align:left}\
.charted td.n::before{content:attr(data-of) \" \";color:var(--soft)}.charted svg{margin:0 0 .3rem}}";

/// Nothing is loaded and nothing runs, whatever may have come into the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Letters that a browser takes as something else, or as nothing: control characters, those that turn the direction of
/// what follows, and those that cannot be seen. Two names that differ by them alone would look the same.
fn is_unseen(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

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
            letter if is_unseen(letter) => {
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
        "<h2>By reason</h2><table id=\"reasons\" class=\"charted\"><thead><tr><th>Reason</th><th class=\"n\">Objects</th>\
         <th class=\"n\">Size</th><th class=\"bar\"></th></tr></thead><tbody>",
    );
    let mut rows: Vec<(&String, &Tally)> = run.totals.by_reason.iter().collect();
    rows.sort_by_key(|(name, tally)| (std::cmp::Reverse(tally.size_bytes), (*name).clone()));
    for (name, tally) in rows {
        let reason = reason_named(name);
        let goes = reason.is_some_and(|reason| !reason.is_kept());
        let (keep, go) = if goes { (0, tally.size_bytes) } else { (tally.size_bytes, 0) };
        let _ = write!(
            html,
            "<tr><td class=\"key\">{}<br><span class=\"soft\">{}</span></td><td class=\"n\" data-of=\"Objects\">{}</td>\
             <td class=\"n\" data-of=\"Size\">{}</td><td class=\"bar\">{}</td></tr>",
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
    let size = |folder: &Folder| folder.kept.size_bytes.saturating_add(folder.not_needed.size_bytes);
    let (others, named): (Vec<_>, Vec<_>) = folders.iter().partition(|(name, _)| *name == OTHER_FOLDERS);
    let whole = named.iter().map(|(_, folder)| size(folder)).max().unwrap_or(0);
    html.push_str(
        "<h2>By folder</h2><p class=\"soft\"><span class=\"key-keep\">&#9632;</span> kept, <span class=\"key-go\">\
         &#9632;</span> not needed</p>",
    );
    if !others.is_empty() {
        let _ = write!(
            html,
            "<p class=\"soft\">The first {} folders; what lies in others is counted together.</p>",
            named.len()
        );
    }
    html.push_str(
        "<table id=\"folders\" class=\"charted\"><thead><tr><th>Folder</th><th class=\"n\">Kept</th>\
         <th class=\"n\">Not needed</th><th class=\"bar\"></th></tr></thead><tbody>",
    );
    for (name, folder) in named.into_iter().chain(others) {
        // Of many folders together no bar would be comparable.
        let bar = if name == OTHER_FOLDERS {
            String::new()
        } else {
            bar(folder.kept.size_bytes, folder.not_needed.size_bytes, whole)
        };
        let _ = write!(
            html,
            "<tr><td class=\"key\">{}</td><td class=\"n\" data-of=\"Kept\">{} ({})</td>\
             <td class=\"n\" data-of=\"Not needed\">{} ({})</td><td class=\"bar\">{bar}</td></tr>",
            escaped(name),
            bytes(folder.kept.size_bytes),
            number(folder.kept.count),
            bytes(folder.not_needed.size_bytes),
            number(folder.not_needed.count),
        );
    }
    html.push_str("</tbody></table>");
}

fn outcomes(html: &mut String, run: &RunRecord) {
    let is_restore = run.mode == super::Mode::Restore;
    html.push_str(match is_restore {
        true => "<h2>What came back</h2>",
        false => "<h2>What became of the orphans</h2>",
    });
    if run.mode == super::Mode::DryRun {
        html.push_str("<p>A dry run deletes nothing.</p>");
        return;
    }
    html.push_str(
        "<table id=\"outcomes\"><thead><tr><th>Outcome</th><th class=\"n\">Objects</th><th class=\"n\">Size</th></tr></thead><tbody>",
    );
    let way = if run.facts.undo.as_deref() == Some("quarantine") { "moved to quarantine" } else { "deleted" };
    let deleted = [(way, &run.totals.deleted)].into_iter().filter(|_| !is_restore);
    let spared = run.totals.spared.iter().map(|(name, tally)| (name.as_str(), tally));
    let others = [("expired in quarantine", run.facts.expired.as_ref()), ("restored", run.facts.restored.as_ref())];
    let others = others.into_iter().filter_map(|(name, tally)| Some((name, tally?)));
    for (name, tally) in deleted.chain(spared).chain(others) {
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
    match run.facts.undo.as_deref() {
        Some("delete_markers") => row("Undo", "behind delete markers: the bucket keeps versions".to_owned()),
        Some("quarantine") => row("Undo", "from the bucket's quarantine, until it expires there".to_owned()),
        Some("none") => row("Undo", "what is deleted is gone for good".to_owned()),
        _ => {}
    }
    if let Some((ended_ms, started_ms)) = run.ended_ms.zip(run.started_ms) {
        let slices = if run.attempts == 1 { "slice" } else { "slices" };
        row("Took", format!("{} s in {} {slices}", ended_ms.saturating_sub(started_ms) / 1000, run.attempts));
    }
    // A run that failed says more above.
    if let Some(reason) = run.reason.as_ref().filter(|_| run.error.is_none()) {
        row("Note", reason.clone());
    }
    for finding in &run.facts.findings {
        row("Finding", finding.clone());
    }
}

/// The page of a run that has ended.
pub fn render(run: &RunRecord, folders: &BTreeMap<String, Folder>) -> String {
    let table = escaped(&format!("{}.{}", run.database, run.table));
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"Content-Security-Policy\" \
         content=\"{POLICY}\"><meta name=\"viewport\" content=\"width=device-width\"><title>Sweep of {table}</title><style>{STYLE}</style></head><body>\
         <h1>Sweep of {table}</h1><p class=\"soft\">{}</p>",
        escaped(run.state.as_str())
    );
    if let Some(error) = &run.error {
        let _ = write!(html, "<p><strong>{}</strong></p>", escaped(error));
    }
    html.push_str("<h2>The run</h2><table id=\"facts\"><tbody>");
    facts(&mut html, run);
    html.push_str("</tbody></table>");
    if run.mode != super::Mode::Restore {
        by_reason(&mut html, run);
    }
    by_folder(&mut html, folders);
    outcomes(&mut html, run);
    html.push_str("</body></html>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::items::RunState;
    use crate::sweep::{Mode, SweepRequest};

    #[test]
    fn sizes_and_counts_are_readable() {
        let sizes = [0, 1023, 1024, 1_572_864, i64::MAX].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "8192.0 PiB"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn names_are_text_and_nothing_else() {
        assert_eq!(escaped("<b a=\"x'\">&\u{1}"), "&lt;b a=&quot;x&#39;&quot;&gt;&amp;\\u{1}");
        assert_eq!(escaped("\u{202e}gnp.exe\u{85}\u{2028}"), "\\u{202e}gnp.exe\\u{85}\\u{2028}");
        assert_eq!(escaped("قسم ü😀"), "قسم ü😀");
    }

    #[test]
    fn bars_stay_inside_and_what_is_there_is_seen() {
        assert!(bar(0, 0, 0).contains("class=\"keep\" width=\"0\""));
        let tiny = bar(i64::MAX - 1, 1, i64::MAX);
        assert!(tiny.contains("width=\"999\"") && tiny.contains("x=\"999\" width=\"2\""), "{tiny}");
    }

    fn record() -> RunRecord {
        let request = SweepRequest {
            run_id: "r".into(),
            table_id: None,
            database: "d".into(),
            table: "t<i>".into(),
            mode: Mode::DryRun,
        };
        let mut run = RunRecord::queued(&request, "id", 5, "1".into());
        (run.state, run.attempts, run.started_ms, run.ended_ms) = (RunState::Completed, 1, Some(0), Some(2_500));
        run
    }

    fn folder(size_bytes: u64) -> Folder {
        let mut folder = Folder::default();
        folder.not_needed.add(size_bytes);
        folder
    }

    #[test]
    fn nothing_found_is_a_page_as_well() {
        let html = render(&record(), &BTreeMap::new());
        for part in ["Sweep of d.t&lt;i&gt;", "2 s in 1 slice<", "A dry run deletes nothing.", "</html>"] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("id=\"folders\"") && !html.contains(">Note<"));
        let noted = render(&RunRecord { reason: Some("fuse <".into()), ..record() }, &BTreeMap::new());
        assert!(noted.contains("<th>Note</th><td class=\"key\">fuse &lt;</td>"));
    }

    #[test]
    fn what_can_come_back_and_what_came_is_said() {
        let mut run = RunRecord { mode: Mode::Ordinary, ..record() };
        run.facts.undo = Some("quarantine".into());
        run.totals.deleted.add(3);
        run.facts.expired = Some(Tally { count: 21, size_bytes: 5 });
        run.facts.restored = Some(Tally { count: 1_234, size_bytes: 2048 });
        let html = render(&run, &BTreeMap::new());
        for part in [
            "<th>Undo</th><td class=\"key\">from the bucket&#39;s quarantine",
            "<td>moved to quarantine</td><td class=\"n\">1<",
            "<td>expired in quarantine</td><td class=\"n\">21<",
            "<td>restored</td><td class=\"n\">1,234</td><td class=\"n\">2.0 KiB<",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let mut back = RunRecord { mode: Mode::Restore, ..record() };
        back.facts.restored = run.facts.restored;
        back.totals.spared.entry("gone".into()).or_default().add(1);
        let html = render(&back, &BTreeMap::new());
        assert!(
            html.contains("What came back") && html.contains("<td>gone</td>") && html.contains("<td>restored</td>")
        );
        assert!(!html.contains("id=\"reasons\"") && !html.contains("deleted"), "{html}");
    }

    #[test]
    fn whatever_folders_are_named_the_page_has_the_same_elements() {
        let elements = |name: &str| {
            let html = render(&record(), &BTreeMap::from([(name.to_owned(), folder(7))]));
            html.split('<').skip(1).map(|tag| tag.split(['>', ' ']).next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let plain = elements("data/");
        for name in [
            "<script>alert(1)</script>/",
            "\"><img src=x onerror=alert(1)>/",
            "</style></table>/",
            "' onclick='x/",
            "&lt;/",
        ] {
            assert_eq!(elements(name), plain, "{name}");
        }
    }

    #[test]
    fn other_folders_come_last_and_do_not_shrink_the_bars_of_those_with_names() {
        let folders = [("a/", 10), ("z/", 5), (OTHER_FOLDERS, 1_000_000)];
        let folders: BTreeMap<String, Folder> =
            folders.iter().map(|(name, size)| ((*name).to_owned(), folder(*size))).collect();
        let html = render(&record(), &folders);
        let at = |part: &str| html.find(part).unwrap_or_else(|| panic!("{part}"));
        assert!(
            at(">a/<") < at(">z/<") && at(">z/<") < at(">(other folders)<") && html.contains("The first 2 folders")
        );
        assert!(html.contains("class=\"go\" x=\"0\" width=\"1000\"") && html.contains("width=\"500\""));
        assert_eq!(html.matches("<svg").count(), 2);
    }
}
