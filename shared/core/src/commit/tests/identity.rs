//! Tables with identity columns, from a staged object to a verdict.

use serde_json::json;

use super::kit::{Kit, short};
use crate::delta::testkit::{TABLE_ID, append_info, creation_of};

#[tokio::test]
async fn identity_columns_are_written_one_commit_at_a_time() {
    let kit = Kit::empty().await;
    let mut creation = creation_of(TABLE_ID, &[], json!({}));
    creation[0] = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 6}});
    let plain = creation[1]["metaData"]["schemaString"].as_str().unwrap().to_owned();
    let marked = |mark: i64| {
        let mut line = creation[1].clone();
        let column = format!(
            r#""metadata":{{"delta.identity.start":0,"delta.identity.step":1,"delta.identity.highWaterMark":{mark},"delta.identity.allowExplicitInsert":false}}"#
        );
        line["metaData"]["schemaString"] = json!(plain.replacen(r#""metadata":{}"#, &column, 1));
        line
    };
    kit.table.log(0, &[creation[0].clone(), marked(-1), creation[2].clone()]).await;
    // Files of the kit have the ids 0 to 2.
    let insert = async |name: &str, mark: i64| vec![marked(mark), kit.file(name).await, append_info()];
    let no_mark = kit.propose(1, 1, &[kit.file("a").await, append_info()]).await;
    assert_eq!(short(&no_mark), "rejected SchemaMismatchException IDENTITY_VALUES");
    assert_eq!(no_mark.to_json()["place"], json!({"file": "a", "column": "id"}));
    assert_eq!(short(&kit.propose(1, 2, &insert("b", 2).await).await), "committed 1");
    let late = kit.propose(1, 3, &insert("c", 2).await).await;
    assert_eq!(short(&late), "rejected MetadataChangedException IDENTITY_COLUMN");
    let again = kit.propose(2, 4, &insert("d", 5).await).await;
    assert_eq!(short(&again), "rejected SchemaMismatchException IDENTITY_VALUES", "numbers that were given out");
    let back = kit.propose(2, 5, &insert("e", 1).await).await;
    assert_eq!(short(&back), "rejected SchemaMismatchException IDENTITY_MARK");
    assert_eq!(kit.versions(), [0, 1]);
}
