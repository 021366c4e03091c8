use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{FileEdit, Rebase, RowIds, render};
use crate::delta::json::only_member;
use crate::delta::{Strictness, Version, parse_commit};

fn ids(base: i64, version: i64) -> FileEdit {
    FileEdit::Set(RowIds { base_row_id: Some(base), default_row_commit_version: Some(version) })
}

const COMMIT: &str = concat!(
    "{ \"add\" : {\"path\":\"a\",\"partitionValues\":{},\"size\":1,\"modificationTime\":1,\"dataChange\":true,\"odd\":1.50e3,\"baseRowId\":0} }\r\n",
    "\n",
    r#"{"remove":{"path":"b","dataChange":true}}"#,
    "\n",
    r#"{"domainMetadata":{"domain":"delta.rowTracking","configuration":"{\"rowIdHighWaterMark\":2}","removed":false}}"#,
    "\n",
    r#"{"commitInfo":{"z":123456789012345678901234567890,"tags":null}}"#,
);

#[test]
fn nothing_to_change_changes_nothing() {
    let bytes = Bytes::from_static(COMMIT.as_bytes());
    assert_eq!(render(&bytes, &Rebase::default(), None), bytes);
    let rubbish = Bytes::from_static(&[0xff, 0xfe]);
    assert_eq!(render(&rubbish, &Rebase::default(), Some(1)), rubbish);
}

#[test]
fn each_edit_is_where_it_belongs() {
    let rebase = Rebase {
        adds: [(0, ids(7, 5))].into(),
        removes: [(0, FileEdit::Drop)].into(),
        changed_adds: [(0, vec![("odd".into(), json!({"b": 1})), ("tags".into(), json!({"t": "1"}))])].into(),
        changed_removes: BTreeMap::new(),
        domains: [(0, "{}".to_owned())].into(),
        tags: [("delta.rowTracking.preserved".to_owned(), "false".to_owned())].into(),
        timestamps_start_at: None,
        appended: vec!["{\"txn\":{\"appId\":\"x\",\"version\":1}}".to_owned()],
    };
    let bytes = render(&Bytes::from_static(COMMIT.as_bytes()), &rebase, Some(99));
    let text = std::str::from_utf8(&bytes).unwrap();
    let expected = concat!(
        r#"{"commitInfo":{"z":123456789012345678901234567890,"tags":{"delta.rowTracking.preserved":"false"},"inCommitTimestamp":99}}"#,
        "\n",
        "{\"add\":{\"path\":\"a\",\"partitionValues\":{},\"size\":1,\"modificationTime\":1,\"dataChange\":true,\"odd\":{\"b\":1},\"baseRowId\":7,\"defaultRowCommitVersion\":5,\"tags\":{\"t\":\"1\"}}}\r\n",
        "\n",
        r#"{"domainMetadata":{"domain":"delta.rowTracking","configuration":"{}","removed":false}}"#,
        "\n",
        r#"{"txn":{"appId":"x","version":1}}"#,
        "\n",
    );
    assert_eq!(text, expected);
    let unstamped = render(&Bytes::from_static(COMMIT.as_bytes()), &rebase, None);
    let text = std::str::from_utf8(&unstamped).unwrap();
    assert!(text.starts_with("{\"add\":"), "without a timestamp lines keep their place: {text}");
    assert!(text.contains("\"false\"}}}\n{\"txn\""), "{text}");
}

#[test]
fn a_commit_that_starts_timestamps_says_since_when() {
    let text = "{\"metaData\":{\"id\":\"m\",\"configuration\":{\"a\":\"1\"}}}\n{\"commitInfo\":{}}\n";
    let rebase = Rebase { timestamps_start_at: Some(Version(4)), ..Rebase::default() };
    let bytes = render(&Bytes::from_static(text.as_bytes()), &rebase, Some(77));
    let lines: Vec<Value> =
        bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    assert_eq!(lines[0], json!({"commitInfo": {"inCommitTimestamp": 77}}));
    assert_eq!(
        lines[1]["metaData"]["configuration"],
        json!({"a": "1", "delta.inCommitTimestampEnablementVersion": "4", "delta.inCommitTimestampEnablementTimestamp": "77"})
    );
}

/// A line of a commit, with members that nobody knows, odd numbers and odd spacing.
fn line() -> impl Strategy<Value = (&'static str, String)> {
    let odd = prop_oneof![
        Just(String::new()),
        Just(r#","odd":123456789012345678901234567890"#.to_owned()),
        Just(r#","odd":-0.10E-7"#.to_owned()),
        Just(r#" , "odd" : [1, 2.0, "x\u0041\/"]"#.to_owned()),
        "[a-z]{1,4}".prop_map(|name| format!(r#","{name}_":{{"b":1.0}}"#)),
    ];
    let kind = prop::sample::select(vec!["add", "remove", "domainMetadata", "txn", "commitInfo"]);
    let end = prop::sample::select(vec!["\n", "\r\n", "\n\n"]);
    (kind, odd, end, 0..1000_i64).prop_map(|(kind, odd, end, number)| {
        let inner = match kind {
            "add" => format!(
                r#""path":"{number}","partitionValues":{{}},"size":1,"modificationTime":1,"dataChange":true,"baseRowId":{number}"#
            ),
            "remove" => format!(r#""path":"{number}","dataChange":true"#),
            "domainMetadata" => format!(r#""domain":"d{number}","configuration":"","removed":false"#),
            "txn" => format!(r#""appId":"{number}","version":1"#),
            _ => format!(r#""operation":"{number}""#),
        };
        (kind, format!(r#"{{"{kind}":{{{inner}{odd}}}}}{end}"#))
    })
}

fn edits() -> impl Strategy<Value = Rebase> {
    let edit =
        || prop_oneof![Just(FileEdit::Drop), (0..9_i64, 0..9_i64).prop_map(|(base, version)| ids(base, version))];
    let map = || prop::collection::btree_map(0..6_usize, edit(), 0..3);
    let domains = prop::collection::btree_map(0..4_usize, "[a-z\"]{0,5}", 0..2);
    let tags = prop::collection::btree_map("[a-z.]{1,5}", "[a-z]{0,3}", 0..2);
    let appended = prop::collection::vec(Just(r#"{"txn":{"appId":"new","version":9}}"#.to_owned()), 0..2);
    (map(), map(), domains, tags, appended).prop_map(|(adds, removes, domains, tags, appended)| Rebase {
        adds,
        removes,
        changed_adds: BTreeMap::new(),
        changed_removes: BTreeMap::new(),
        domains: domains.into_iter().collect(),
        tags,
        timestamps_start_at: None,
        appended,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn lines_that_are_not_edited_keep_every_byte(
        lines in prop::collection::vec(line(), 1..12),
        rebase in edits(),
        stamp in prop::option::of(1..9_i64),
    ) {
        // At most one commitInfo, as commits have.
        let mut seen = false;
        let lines: Vec<_> = lines.into_iter().filter(|(kind, _)| *kind != "commitInfo" || !std::mem::replace(&mut seen, true)).collect();
        let text: String = lines.iter().map(|(_, line)| line.as_str()).collect();
        let bytes = render(&Bytes::from(text.clone()), &rebase, stamp);
        let rendered = std::str::from_utf8(&bytes).unwrap();

        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut kept = Vec::new();
        for (kind, line) in &lines {
            let place = counts.entry(*kind).or_default();
            let touched = match *kind {
                "add" => rebase.adds.contains_key(place),
                "remove" => rebase.removes.contains_key(place),
                "domainMetadata" => rebase.domains.contains_key(place),
                "commitInfo" => stamp.is_some() || !rebase.tags.is_empty(),
                _ => false,
            };
            *place += 1;
            if !touched {
                kept.push(line.as_str());
            }
        }
        // In their order, byte for byte.
        let mut rest = rendered;
        for line in kept {
            let at = rest.find(line);
            prop_assert!(at.is_some(), "{line:?} is not in {rendered:?}");
            rest = &rest[at.unwrap() + line.len()..];
        }
        if stamp.is_some() && seen {
            let first = only_member(rendered.lines().next().unwrap());
            prop_assert_eq!(first.as_deref(), Some("commitInfo"));
        }
    }

    #[test]
    fn what_is_rendered_reads_as_what_was_meant(
        lines in prop::collection::vec(line(), 1..12),
        rebase in edits(),
    ) {
        let mut seen = false;
        let lines: Vec<_> = lines.into_iter().filter(|(kind, _)| *kind != "commitInfo" || !std::mem::replace(&mut seen, true)).collect();
        let text: String = lines.iter().map(|(_, line)| line.as_str()).collect();
        let mut expected = parse_commit(text.as_bytes(), Strictness::Log).unwrap();
        let rendered = render(&Bytes::from(text.clone()), &rebase, None);
        let found = parse_commit(&rendered, Strictness::Log).unwrap();
        let mut place = 0;
        expected.adds.retain_mut(|add| {
            let edit = rebase.adds.get(&place);
            place += 1;
            if let Some(FileEdit::Set(ids)) = edit {
                add.base_row_id = ids.base_row_id;
                add.default_row_commit_version = ids.default_row_commit_version;
            }
            edit != Some(&FileEdit::Drop)
        });
        prop_assert_eq!(&found.adds, &expected.adds);
        let dropped = rebase.removes.iter().filter(|(place, edit)| **place < expected.removes.len() && **edit == FileEdit::Drop).count();
        prop_assert_eq!(found.removes.len(), expected.removes.len() - dropped);
        prop_assert_eq!(found.txns.len(), expected.txns.len() + rebase.appended.len());
        for (place, text) in rebase.domains.iter().filter(|(place, _)| **place < expected.domains.len()) {
            prop_assert_eq!(&found.domains[*place].configuration, text);
        }
    }
}
