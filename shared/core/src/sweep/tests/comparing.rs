//! Traps in comparing what metadata names with what S3 lists (numbers of the table), one row each. Those that do not fit a
//! row: 6 (slashes around a location, the root of a bucket), 7 (prefixes end in `/`), 9 and 10 (markers and hidden names)
//! are in `guard-cases.json` and below.

use serde_json::{Value, json};

use super::super::testkit::*;
use super::super::*;
use crate::location::{Location, split_uri};
use crate::store::ObjectKey;
use crate::sweep::source::files_of_path;

#[test]
fn every_row_of_the_table() {
    let rows: Vec<Value> = serde_json::from_str(include_str!("../compare-cases.json")).unwrap();
    for row in &rows {
        let text = |field: &str| row[field].as_str().unwrap();
        let named = match text("format") {
            "delta" => files_of_path(&Location::new("b", "t"), text("named"), None).ok(),
            _ => split_uri(text("named")).ok().map(|(bucket, key)| vec![ObjectKey::new(bucket, key)]),
        };
        let found = named.map(|named| {
            let mut references = References::default();
            for at in named {
                references.add_content(&at);
            }
            references.seal();
            references.held(&ObjectKey::new("b", text("key")))
        });
        let expected = match text("expect") {
            "refused" => None,
            "referenced" => Some(Held::Referenced),
            "spelled_differently" => Some(Held::SpelledDifferently),
            _ => Some(Held::No),
        };
        assert_eq!(found, expected, "{row}");
    }
}

#[tokio::test]
async fn slashes_around_a_location_and_the_root_of_a_bucket() {
    for location in ["s3://lake/wh/t/", "s3a://lake/wh/t", "s3://lake//wh/t//"] {
        let lake = Lake::new();
        let mut table = Iceberg::create(&lake, "t", 2).await;
        table.metadata["location"] = json!(location);
        table.write_metadata().await;
        lake.optimize("t", json!({})).await;
        advance(&lake.world.clock, 1);
        table.append(&["live.parquet"]).await;
        let orphan = table.data("orphan.parquet").await;
        // A sibling whose name begins like the table's.
        lake.put("wh/t_v2/data/x.parquet", "x").await;
        lake.days(4);
        assert_eq!(lake.gone().await.1, [orphan].into(), "{location}");
    }
    let lake = Lake::new();
    let mut table = Iceberg::create_at(&lake, "t", "x", 2).await;
    table.metadata["location"] = json!("s3://lake");
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    let (live, orphan) = ("data/live.parquet".to_owned(), "data/orphan.parquet".to_owned());
    lake.put(&live, "x").await;
    lake.put(&orphan, "x").await;
    lake.put("metadata/m.avro", manifest(&[(1, 0, live)])).await;
    lake.put("metadata/l.avro", manifest_list(&[("metadata/m.avro".to_owned(), 1, 1)])).await;
    table.metadata["snapshots"] = json!([{"snapshot-id": 1, "manifest-list": "s3://lake/metadata/l.avro"}]);
    lake.put("metadata/v1.metadata.json", table.metadata.to_string()).await;
    let pointer = "s3://lake/metadata/v1.metadata.json";
    lake.register("t", "", &[("table_type", "ICEBERG"), ("metadata_location", pointer)]);
    lake.days(4);
    let (record, gone) = lake.gone().await;
    assert_eq!(gone, [orphan].into(), "{record:?}");
}
