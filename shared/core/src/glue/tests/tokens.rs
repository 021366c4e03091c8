//! Page tokens and expressions that nobody issued or wrote: a named error, never a panic, never another listing's rows.

use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{NOW_MS, Wire, partition_input, table_input};
use crate::glue::answer;

const KEYS: [(&str, &str); 2] = [("n", "int"), ("s", "string")];

/// Listings that differ in one thing each, with the token of their first page.
struct Issued {
    wire: Wire,
    listings: Vec<(Value, String)>,
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

async fn issue() -> Issued {
    let wire = Wire::with_table(&KEYS).await;
    wire.ok("CreateTable", json!({ "DatabaseName": "d", "TableInput": table_input("u", &KEYS) })).await;
    for table in ["t", "u"] {
        let inputs: Vec<Value> =
            (0..60).map(|n| partition_input(&[&(n / 10).to_string(), &(n % 10).to_string()])).collect();
        let input = json!({ "DatabaseName": "d", "TableName": table, "PartitionInputList": inputs });
        wire.ok("BatchCreatePartition", input).await;
    }
    wire.world.clock.advance_ms(60 * 60 * 1000);
    let segment = |number: u16, total: u16| json!({ "SegmentNumber": number, "TotalSegments": total });
    let at = |ms: i64| json!(ms as f64 / 1000.0);
    let inputs = [
        json!({ "TableName": "t" }),
        json!({ "TableName": "u" }),
        json!({ "TableName": "t", "Expression": "n >= 1" }),
        json!({ "TableName": "t", "Expression": "n >= 2" }),
        json!({ "TableName": "t", "Expression": "s in ('1', '2', '3')" }),
        json!({ "TableName": "t", "Segment": segment(0, 2) }),
        json!({ "TableName": "t", "Segment": segment(1, 2) }),
        json!({ "TableName": "t", "Segment": segment(1, 3) }),
        json!({ "TableName": "t", "QueryAsOfTime": at(NOW_MS + 1000) }),
        json!({ "TableName": "t", "QueryAsOfTime": at(NOW_MS + 2000) }),
    ];
    let mut listings = Vec::new();
    for mut input in inputs {
        input["DatabaseName"] = json!("d");
        input["MaxResults"] = json!(2);
        let page = wire.ok("GetPartitions", input.clone()).await;
        listings.push((input, page["NextToken"].as_str().unwrap().to_owned()));
    }
    Issued { wire, listings }
}

fn issued() -> &'static Issued {
    static ISSUED: OnceLock<Issued> = OnceLock::new();
    ISSUED.get_or_init(|| runtime().block_on(issue()))
}

impl Issued {
    /// With this token the listing is refused by name.
    fn refuses(&self, (input, _): &(Value, String), token: &str) {
        let mut input = input.clone();
        input["NextToken"] = json!(token);
        let (name, text) = runtime().block_on(self.wire.fails("GetPartitions", input));
        assert!(name == "InvalidInputException" && text.contains("NextToken"), "{token}: {name} {text}");
    }
}

#[test]
fn a_token_is_of_one_listing() {
    let issued = issued();
    for (at, listing) in issued.listings.iter().enumerate() {
        for (other, (_, token)) in issued.listings.iter().enumerate() {
            if at != other {
                issued.refuses(listing, token);
            }
        }
        let mut on = listing.0.clone();
        on["NextToken"] = json!(listing.1);
        let page = runtime().block_on(issued.wire.ok("GetPartitions", on));
        assert_eq!(page["Partitions"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn every_bit_of_a_token_counts_and_so_does_its_length() {
    let issued = issued();
    for listing in [&issued.listings[0], &issued.listings[4], &issued.listings[8]] {
        let token = &listing.1;
        let bytes = URL_SAFE_NO_PAD.decode(token).unwrap();
        for at in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[at / 8] ^= 1 << (at % 8);
            issued.refuses(listing, &URL_SAFE_NO_PAD.encode(changed));
        }
        // An empty token is none: the walk begins.
        for length in 1..bytes.len() {
            issued.refuses(listing, &URL_SAFE_NO_PAD.encode(&bytes[..length]));
            issued.refuses(listing, &URL_SAFE_NO_PAD.encode(&bytes[length..]));
        }
        for more in [&[0_u8][..], &[0xff], b"more", &[0; 2000]] {
            issued.refuses(listing, &URL_SAFE_NO_PAD.encode([&bytes, more].concat()));
            issued.refuses(listing, &URL_SAFE_NO_PAD.encode([more, &bytes].concat()));
        }
        for at in 1..token.len() {
            issued.refuses(listing, &token[..at]);
        }
        for text in [
            format!("{token}="),
            format!("{token}A"),
            format!(" {token}"),
            format!("{token}\n"),
            STANDARD.encode(&bytes) + "==",
            hex::encode(&bytes),
            format!("{token}{token}"),
            "\0".to_owned(),
            "😀".repeat(100),
        ] {
            issued.refuses(listing, &text);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Bits turned over, parts cut out, put in, or taken from another listing's token.
    #[test]
    fn a_token_that_was_tampered_with_is_refused(
        own in 0_usize..10,
        other in 0_usize..10,
        (from, to, behind) in (0_usize..80, 0_usize..80, 0_usize..80),
        noise in prop::collection::vec(any::<u8>(), 0..20),
        is_text in any::<bool>(),
    ) {
        let issued = issued();
        let listing = &issued.listings[own];
        let (mine, theirs) = (&listing.1, &issued.listings[other].1);
        let decode = |token: &str| if is_text { token.as_bytes().to_vec() } else { URL_SAFE_NO_PAD.decode(token).unwrap() };
        let (mine_bytes, their_bytes) = (decode(mine), decode(theirs));
        let head = &mine_bytes[..from.min(mine_bytes.len())];
        let middle = &their_bytes[to.min(their_bytes.len())..];
        let tail = &mine_bytes[behind.min(mine_bytes.len())..];
        for parts in [vec![head, middle], vec![middle, tail], vec![head, noise.as_slice(), tail], vec![noise.as_slice()]] {
            let whole = parts.concat();
            let token = if is_text { String::from_utf8_lossy(&whole).into_owned() } else { URL_SAFE_NO_PAD.encode(whole) };
            if token != *mine && !token.is_empty() {
                issued.refuses(listing, &token);
            }
        }
    }

    /// Any bytes in the place of the expression, as a client might send them: an answer, or a fault of the caller's.
    #[test]
    fn any_bytes_may_come_as_an_expression(text in any::<String>(), bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let escaped = serde_json::to_string(&text).unwrap();
        for expression in [escaped.as_bytes().to_vec(), [b"\"".to_vec(), bytes, b"\"".to_vec()].concat()] {
            sent(&expression);
        }
    }
}

/// Status and exception of a request with these bytes as its `Expression`.
fn sent(expression: &[u8]) -> (u16, String) {
    let head = br#"{"DatabaseName":"d","TableName":"t","MaxResults":2,"Expression":"#;
    let body = [head, expression, b"}"].concat();
    let wire = &issued().wire;
    let answer = runtime().block_on(answer(&wire.app, Some("AWSGlue.GetPartitions"), &body, None, "r-1"));
    let parsed: Value = serde_json::from_str(&answer.body).unwrap();
    assert!(answer.status == 200 || answer.status == 400, "{} {expression:?}", answer.body);
    (answer.status, parsed["__type"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn expressions_that_mean_harm_are_refused_by_name() {
    let text = |text: &str| serde_json::to_string(text).unwrap().into_bytes();
    let nested =
        |open: &str, close: &str, count: usize| text(&format!("{}n=1{}", open.repeat(count), close.repeat(count)));
    let list = (0..500).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    for (expression, status, name) in [
        (nested("(", ")", 1022), 200, ""),
        (nested("(", ")", 1023), 400, "ValidationException"),
        (nested("not(", ")", 409), 200, ""),
        (nested("n=1 or(n=2 and(", "))", 100), 200, ""),
        (text(&"(".repeat(2048)), 400, "InvalidInputException"),
        (text(&"(".repeat(2049)), 400, "ValidationException"),
        (text(&" ".repeat(2048)), 200, ""),
        (text(&"é".repeat(2049)), 400, "ValidationException"),
        (text(&format!("n in ({list})")), 200, ""),
        (text("s = 'a\0b'"), 400, "ValidationException"),
        (text("n = 1\0"), 400, "ValidationException"),
        (text("\0"), 400, "ValidationException"),
        (b"\"s = '\\u0000'\"".to_vec(), 400, "ValidationException"),
        (b"\"s = '\\ud83d\\ude00'\"".to_vec(), 200, ""),
        (b"\"s = '\\ud83d'\"".to_vec(), 400, "SerializationException"),
        (b"\"s = '\0'\"".to_vec(), 400, "SerializationException"),
        (b"\"s = '\xff'\"".to_vec(), 400, "SerializationException"),
        (b"\"s = '\xc3\x28'\"".to_vec(), 400, "SerializationException"),
        (b"\"s = '\xed\xa0\x80'\"".to_vec(), 400, "SerializationException"),
        (b"\"s = '\xf8\x88\x80\x80\x80'\"".to_vec(), 400, "SerializationException"),
        (b"3".to_vec(), 400, "ValidationException"),
    ] {
        assert_eq!(sent(&expression), (status, name.to_owned()), "{}", String::from_utf8_lossy(&expression));
    }
}
