use std::collections::BTreeSet;

use parquet::basic::Encoding as Written;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{WriterProperties, WriterVersion};
use serde_json::{Value, json};

use super::*;
use crate::delta::footer::{Node, file_fields};
use crate::delta::testkit::parquet_pages;

const SAMPLES: [&[u8]; 2] =
    [include_bytes!("../samples/pyarrow-v1.parquet"), include_bytes!("../samples/pyarrow-v2.parquet")];

fn metadata_of(file: &[u8]) -> ParquetMetaData {
    let length = u32::from_le_bytes(file[file.len() - 8..file.len() - 4].try_into().unwrap()) as usize;
    crate::delta::footer::read::decode(&file[file.len() - 8 - length..file.len() - 8]).unwrap()
}

fn kind_of(metadata: &ParquetMetaData, leaf: usize) -> Kind {
    fn below(node: &Node, wanted: usize) -> Option<Kind> {
        match node {
            Node::Leaf { kind, leaf } => (*leaf == wanted).then(|| kind.clone()),
            Node::Struct(fields) => fields.iter().find_map(|field| below(&field.node, wanted)),
            Node::List(element) => below(&element.node, wanted),
            Node::Map { key, value } => below(&key.node, wanted).or_else(|| below(&value.node, wanted)),
            Node::Variant(_) | Node::Other { .. } => None,
        }
    }
    file_fields(metadata).iter().find_map(|field| below(&field.node, leaf)).unwrap()
}

fn chunk_bytes(file: &[u8], chunk: &ColumnChunkMetaData) -> Vec<u8> {
    let (start, length) = chunk_range(chunk, file.len() as u64).unwrap();
    file[start as usize..(start + length) as usize].to_vec()
}

type Entries = Vec<(i16, Option<Datum>)>;

fn entries(bytes: Vec<u8>, chunk: &ColumnChunkMetaData, kind: &Kind, rows: u64) -> Result<Entries> {
    let mut found = Vec::new();
    read_leaf(&bytes.into(), chunk, kind, rows, &mut |level, value| found.push((level, value)))?;
    Ok(found)
}

/// As `samples/make.py` says.
fn expected(kind: &str, row: i128) -> Option<Datum> {
    if row % 7 == 3 {
        return None;
    }
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let float = row as f64;
    Some(match kind {
        "flag" => Datum::Flag(row % 3 == 0),
        "int" => Datum::Int(row * 37 - 500),
        "long" => Datum::Int(row.pow(3) * 10_000_000_019 - (1 << 60)),
        "float" => Datum::Float(float / 4.0 - 10.0),
        "double" => Datum::Float(float / 8.0 - 10.0),
        "text" => Datum::Text(format!("text {} {}", row % 50, "x".repeat(usize::try_from(row % 20).unwrap()))),
        "decimal" => Datum::Decimal { unscaled: row * 101 - 3_000, scale: 2 },
        other => panic!("{other}"),
    })
}

#[test]
fn every_encoding_and_compression_of_pyarrow_is_read() {
    let mut seen = BTreeSet::new();
    for file in SAMPLES {
        let metadata = metadata_of(file);
        let group = metadata.row_group(0);
        for (leaf, chunk) in group.columns().iter().enumerate() {
            let name = chunk.column_path().string();
            let rows = u64::try_from(group.num_rows()).unwrap();
            let found = entries(chunk_bytes(file, chunk), chunk, &kind_of(&metadata, leaf), rows).unwrap();
            seen.insert(name.rsplit('-').next().unwrap().split('.').next().unwrap().to_owned());
            let kind = name.split('-').next().unwrap();
            if kind == "list" {
                let longs = |row: i128| match row % 5 {
                    0 | 1 => vec![None],
                    _ => vec![Some(Datum::Int(row)), None, Some(Datum::Int(row + 1))],
                };
                let values: Vec<_> = found.into_iter().map(|(_, value)| value).collect();
                assert_eq!(values, (0..130).flat_map(longs).collect::<Vec<_>>(), "{name}");
                continue;
            }
            assert_eq!(found.len(), 130, "{name}");
            for (row, (level, value)) in found.into_iter().enumerate() {
                let expected = expected(kind, i128::try_from(row).unwrap());
                assert_eq!((level, &value), (i16::from(expected.is_some()), &expected), "{name} {row}");
            }
        }
    }
    let all = ["BROTLI", "GZIP", "LZ4", "NONE", "SNAPPY", "ZSTD"];
    assert_eq!(seen, all.into_iter().map(str::to_owned).collect());
}

/// Every encoding that the crate writes, uncompressed so that changes reach the decoders.
fn own_files() -> Vec<Vec<u8>> {
    let message = "message m { required int64 id; optional int32 n; optional boolean b; optional float f;
        optional double d; optional binary t (STRING); required fixed_len_byte_array(5) x;
        required fixed_len_byte_array(9) m (DECIMAL(20,2)); optional int96 old;
        optional group l (LIST) { repeated group list { optional binary element (STRING); } }
        optional group s { required group r { optional int64 v; } } }";
    let rows: Vec<Value> = (0..150)
        .map(|at| {
            let text = format!("{}{at}", "ab".repeat(at % 7));
            let maybe = |value: Value| if at % 4 == 1 { Value::Null } else { value };
            json!({"id": at as i64 * 1_000 - 7, "n": maybe(json!(at % 9)), "b": maybe(json!(at % 5 == 0)),
                "f": maybe(json!(0.5)), "d": maybe(json!(at)), "t": maybe(json!(text)), "x": "", "m": "", "old": at,
                "l": match at % 3 { 0 => json!(null), 1 => json!([]), _ => json!([text, null, "b"]) },
                "s": maybe(json!({"r": {"v": maybe(json!(at))}}))})
        })
        .collect();
    let mut files = Vec::new();
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for dictionary in [true, false] {
            for bytes in [Written::PLAIN, Written::DELTA_LENGTH_BYTE_ARRAY, Written::DELTA_BYTE_ARRAY] {
                let numbers = if bytes == Written::PLAIN { Written::PLAIN } else { Written::DELTA_BINARY_PACKED };
                let floats = if bytes == Written::PLAIN { Written::PLAIN } else { Written::BYTE_STREAM_SPLIT };
                let mut properties = WriterProperties::builder()
                    .set_writer_version(version)
                    .set_dictionary_enabled(dictionary)
                    .set_data_page_row_count_limit(60)
                    .set_write_batch_size(20);
                let columns = [
                    ("id", numbers),
                    ("n", numbers),
                    ("s.r.v", numbers),
                    ("f", floats),
                    ("d", floats),
                    ("t", bytes),
                    ("l.list.element", bytes),
                    ("m", if bytes == Written::PLAIN { Written::PLAIN } else { Written::DELTA_BYTE_ARRAY }),
                ];
                for (column, encoding) in columns {
                    let path: Vec<String> = column.split('.').map(str::to_owned).collect();
                    properties = properties.set_column_encoding(path.into(), encoding);
                }
                files.push(parquet_pages(message, &rows, usize::MAX, properties.build()));
            }
        }
    }
    files
}

#[test]
fn every_encoding_of_the_rust_writer_says_the_same() {
    let files = own_files();
    let mut first: Vec<Entries> = Vec::new();
    let mut encodings = BTreeSet::new();
    for (index, file) in files.iter().enumerate() {
        let metadata = metadata_of(file);
        for (leaf, chunk) in metadata.row_group(0).columns().iter().enumerate() {
            encodings.extend(chunk.encodings().map(|encoding| format!("{encoding:?}")));
            let kind = kind_of(&metadata, leaf);
            // A fixed number of bytes that means nothing has no values here.
            let kind = if matches!(kind, Kind::Other(_)) { Kind::Null } else { kind };
            let found = entries(chunk_bytes(file, chunk), chunk, &kind, 150).unwrap();
            match first.get(leaf) {
                Some(first) if index > 0 => assert_eq!(&found, first, "{} {index}", chunk.column_path()),
                _ => first.push(found),
            }
        }
    }
    assert_eq!(first[0][3], (0, Some(Datum::Int(2_993))));
    assert_eq!(first[5][2], (1, Some(Datum::Text("abab2".to_owned()))));
    for wanted in ["PLAIN", "RLE_DICTIONARY", "DELTA_BINARY_PACKED", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"] {
        assert!(encodings.contains(wanted), "{wanted}: {encodings:?}");
    }
}

fn noise(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn mutated(whole: &[u8], state: &mut u64) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..=noise(state) % 3 {
        let at = noise(state) as usize % bytes.len();
        match noise(state) % 6 {
            0 => bytes[at] = noise(state) as u8,
            1 => bytes[at] ^= 1 << (noise(state) % 8),
            2 => bytes[at] = 0xff,
            3 => bytes.truncate(at.max(1)),
            // Lengths and counts are near the start of a page.
            4 => {
                let near = at % bytes.len().min(48);
                bytes[near] = noise(state) as u8;
            }
            _ => bytes.insert(at, noise(state) as u8),
        }
    }
    bytes
}

/// A panic would end the process: there is nothing around the decoder that would catch it.
#[test]
fn no_page_whatever_its_bytes_makes_the_decoder_give_up() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let (mut refused, mut read) = (0, 0);
    let own = own_files();
    let files = own.iter().map(Vec::as_slice).chain(SAMPLES);
    for file in files {
        let metadata = metadata_of(file);
        let rows = u64::try_from(metadata.row_group(0).num_rows()).unwrap();
        for (leaf, chunk) in metadata.row_group(0).columns().iter().enumerate() {
            let (whole, kind) = (chunk_bytes(file, chunk), kind_of(&metadata, leaf));
            for _ in 0..40 {
                let mut entries = 0_u64;
                let found =
                    read_leaf(&mutated(&whole, &mut state).into(), chunk, &kind, rows, &mut |_, _| entries += 1);
                // Never more than the footer announced.
                assert!(entries <= u64::try_from(chunk.num_values()).unwrap().max(rows));
                match found {
                    Ok(()) => read += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(refused > 1_000 && read > 500, "{refused} {read}");
}

#[test]
fn bombs_are_defused() {
    // Zeros, packed a thousand times smaller, in a page that says that it is small.
    let zeros = vec![0_u8; 8 * 1024 * 1024];
    let mut packed = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzEncoder::new(&zeros[..], flate2::Compression::best()), &mut packed)
        .unwrap();
    let gzip = parquet::basic::Compression::GZIP(parquet::basic::GzipLevel::default());
    assert!(unpack(gzip, &packed, 1_000).is_err());
    assert_eq!(unpack(gzip, &packed, zeros.len()).unwrap().len(), zeros.len());
    // One text in a dictionary, named by every row.
    let row = json!({"t": "x".repeat(1_000_000)});
    let rows = vec![row; 300];
    let file =
        parquet_pages("message m { required binary t (STRING); }", &rows, usize::MAX, WriterProperties::default());
    let metadata = metadata_of(&file);
    let chunk = metadata.row_group(0).column(0);
    let mut most = 0;
    let found = read_leaf(&chunk_bytes(&file, chunk).into(), chunk, &Kind::Text, 300, &mut |_, _| most += 1);
    assert_eq!(found, Err(PagesError::TooMuch));
    assert!(most < 300);
}

#[test]
fn differences_wrap_around() {
    // 128 values in a block of four, the first 7, then -7, then nothing.
    assert!(bits::Deltas::new(&[0x80, 1, 4, 1, 14], 1).unwrap().next().is_ok_and(|value| value == 7));
    assert!(bits::Deltas::new(&[0x80, 1, 0, 1, 14], 1).is_err(), "no parts of a block");
    assert!(bits::Deltas::new(&[0x80, 1, 4, 9, 14], 1).is_err(), "another count");
    let mut cut = bits::Deltas::new(&[0x80, 1, 4, 2, 14], 2).unwrap();
    assert!(cut.next().is_ok() && cut.next().is_err() && cut.next().is_err());
    assert!(Runs::new(&[], 33).is_err());
    assert_eq!(bits::packed(&[0b1000_1000, 0b1100_0110], 3, 4), Some(0b100));
    assert_eq!(bits::packed(&[0xff; 9], 64, 0), Some(u64::MAX));
    assert_eq!(bits::packed(&[0xff; 8], 64, 1), None);
}
