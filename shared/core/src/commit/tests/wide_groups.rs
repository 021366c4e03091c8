//! Row groups that hold more values than may be held: they are read page by page.

use std::sync::Arc;

use parquet::data_type::{DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::json;

use super::kit::{Kit, short};
use crate::commit::verdict::RowRange;
use crate::delta::footer::{Kind, LeafPages, PagesError, chunk_range, read_footer};
use crate::delta::testkit::{add_line, append_info};
use crate::store::{GetOptions, ObjectKey, ReadObjects};

/// More than 2.5 million values in two columns.
const ROWS: i64 = 1_260_000;

/// One row group of even ids, but for the last, and of prices, a third of which are null, so that pages of the columns end
/// at different rows.
fn one_group() -> Vec<u8> {
    let schema = Arc::new(parse_message_type("message m { required int64 id; optional double price; }").unwrap());
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    let mut out = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut out, schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let ids: Vec<i64> = (0..ROWS).map(|at| if at == ROWS - 1 { 1 } else { 2 * at }).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
    column.close().unwrap();
    let levels: Vec<i16> = (0..ROWS).map(|at| i16::from(at % 3 > 0)).collect();
    let prices = vec![0.5; levels.iter().filter(|level| **level > 0).count()];
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&prices, Some(&levels), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    out
}

#[tokio::test]
async fn a_large_row_group_is_read_to_its_last_row() {
    let kit = Kit::unpartitioned(json!({"delta.constraints.c": "id % 2 = 0 OR price = 1.0"})).await;
    let bytes = one_group();
    kit.table.put("a.parquet", &bytes).await;
    let mut add = add_line("a.parquet", bytes.len());
    add["add"]["partitionValues"] = json!({});
    add["add"]["stats"] = json!(json!({ "numRecords": ROWS }).to_string());
    let verdict = kit.propose(1, 1, &[add, append_info()]).await;
    let refusal = verdict.refusal().unwrap();
    let last = u64::try_from(ROWS - 1).unwrap();
    assert_eq!(refusal.place.rows, Some(RowRange { first: last, last }), "{} {refusal:?}", short(&verdict));

    let at = ObjectKey::new("lake", "wh/t/a.parquet");
    let objects = &*kit.table.world.objects;
    let footer = read_footer(objects, &at, u64::try_from(bytes.len()).unwrap()).await.unwrap();
    let group = footer.metadata.row_group(0);
    let (start, length) = chunk_range(group.column(1), footer.size_bytes).unwrap();
    let whole = objects.get(&at, &GetOptions::default()).await.unwrap().bytes;
    let chunk = whole.slice(usize::try_from(start).unwrap()..usize::try_from(start + length).unwrap());
    let rows = u64::try_from(ROWS).unwrap();
    let mut pages = LeafPages::new(chunk.clone(), group.column(1), &Kind::Null, rows);
    let (mut entries, mut count) = (0, 0);
    while pages.next_page(100_000, &mut |_, _| entries += 1).unwrap() {
        count += 1;
    }
    assert!(entries == rows && count > 20, "{entries} in {count} pages");
    // A page is all that is held of a column: one that is too large is not unpacked.
    let mut pages = LeafPages::new(chunk, group.column(1), &Kind::Null, rows);
    assert_eq!(pages.next_page(10, &mut |_, _| panic!("a value")), Err(PagesError::TooMuch));
}
