use std::collections::HashMap;

use apache_avro::types::Value as Avro;
use apache_avro::{Codec, Reader, Schema, Writer};
use proptest::prelude::*;

use super::*;

/// Two wanted fields among everything that a schema can hold.
const SCHEMA: &str = r#"{
  "type": "record", "name": "entry", "namespace": "n", "fields": [
    {"name": "before", "type": {"type": "array", "items": ["null", "long"]}},
    {"name": "status", "type": "int", "field-id": 0},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
    {"name": "id", "type": ["null", {"type": "fixed", "name": "Id", "size": 5}]},
    {"name": "file", "field-id": 2, "type": {"type": "record", "name": "file", "fields": [
      {"name": "sizes", "type": ["null", {"type": "array", "items":
        {"type": "record", "name": "pair", "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}]}}]},
      {"name": "path", "type": ["null", "string"], "field-id": 100},
      {"name": "when", "type": {"type": "long", "logicalType": "timestamp-micros"}},
      {"name": "again", "type": ["null", "Id"]},
      {"name": "map", "type": {"type": "map", "values": "double"}}
    ]}},
    {"name": "flag", "type": "boolean"},
    {"name": "ratio", "type": "float"}
  ]}"#;

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    before: Vec<Option<i64>>,
    status: i32,
    kind: u32,
    id: Option<[u8; 5]>,
    sizes: Option<Vec<(i32, Vec<u8>)>>,
    path: Option<String>,
    when: i64,
    map: HashMap<String, f64>,
    flag: bool,
    ratio: f32,
}

fn union(value: Option<Avro>) -> Avro {
    match value {
        None => Avro::Union(0, Box::new(Avro::Null)),
        Some(value) => Avro::Union(1, Box::new(value)),
    }
}

impl Entry {
    fn avro(&self) -> Avro {
        let field = |name: &str, value: Avro| (name.to_owned(), value);
        let symbol = ["A", "B", "C"][self.kind as usize].to_owned();
        let id = || union(self.id.map(|id| Avro::Fixed(5, id.to_vec())));
        let pair = |(key, value): &(i32, Vec<u8>)| {
            Avro::Record(vec![field("key", Avro::Int(*key)), field("value", Avro::Bytes(value.clone()))])
        };
        let sizes = self.sizes.as_ref().map(|sizes| Avro::Array(sizes.iter().map(pair).collect()));
        Avro::Record(vec![
            field("before", Avro::Array(self.before.iter().map(|item| union(item.map(Avro::Long))).collect())),
            field("status", Avro::Int(self.status)),
            field("kind", Avro::Enum(self.kind, symbol)),
            field("id", id()),
            field(
                "file",
                Avro::Record(vec![
                    field("sizes", union(sizes)),
                    field("path", union(self.path.clone().map(Avro::String))),
                    field("when", Avro::TimestampMicros(self.when)),
                    field("again", id()),
                    field(
                        "map",
                        Avro::Map(self.map.iter().map(|(key, value)| (key.clone(), Avro::Double(*value))).collect()),
                    ),
                ]),
            ),
            field("flag", Avro::Boolean(self.flag)),
            field("ratio", Avro::Float(self.ratio)),
        ])
    }
}

prop_compose! {
    fn entry()(
        before in prop::collection::vec(any::<Option<i64>>(), 0..4),
        status in any::<i32>(),
        kind in 0u32..3,
        id in any::<Option<[u8; 5]>>(),
        sizes in prop::option::of(prop::collection::vec((any::<i32>(), prop::collection::vec(any::<u8>(), 0..9)), 0..4)),
        path in prop::option::of(".{0,20}"),
        when in any::<i64>(),
        map in prop::collection::hash_map(".{0,4}", any::<f64>(), 0..3),
        flag in any::<bool>(),
        ratio in any::<f32>(),
    ) -> Entry {
        Entry { before, status, kind, id, sizes, path, when, map, flag, ratio }
    }
}

fn write(schema: &str, values: impl IntoIterator<Item = Avro>, codec: Codec, block_bytes: usize) -> Vec<u8> {
    let schema = Schema::parse_str(schema).unwrap();
    let mut writer = Writer::builder().schema(&schema).writer(Vec::new()).codec(codec).block_size(block_bytes).build();
    for value in values {
        writer.append(value).unwrap();
    }
    writer.into_inner().unwrap()
}

/// Status and path of each record.
type Read = Vec<(Option<i64>, Option<String>)>;

fn read(bytes: &[u8], wanted: &[i32]) -> Result<Read, AvroError> {
    let container = Container::open(bytes, wanted, AvroLimits::default())?;
    let mut found = Vec::new();
    container.for_each(|fields| -> Result<(), AvroError> {
        found.push((fields[0].int(), fields[1].text().map(str::to_owned)));
        Ok(())
    })?;
    Ok(found)
}

/// The same container with its blocks packed otherwise, since the oracle is built with two codecs only.
fn repack(bytes: &[u8], codec: &str, pack: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let long = |number: usize| {
        let mut rest = (number as u64) << 1;
        let mut out = Vec::new();
        while rest >= 0x80 {
            out.push((rest as u8 & 0x7f) | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
        out
    };
    let mut cursor = cursor::Cursor::new(&bytes[4..]);
    let mut out = bytes[..4].to_vec();
    let cursor::Block::Items(count) = cursor.block().unwrap() else { panic!("header") };
    let mut header: Vec<(String, Vec<u8>)> = Vec::new();
    for _ in 0..count {
        header.push((cursor.text().unwrap().to_owned(), cursor.bytes("v").unwrap().to_vec()));
    }
    assert_eq!(cursor.block().unwrap(), cursor::Block::End);
    header.retain(|(name, _)| name != "avro.codec");
    header.push(("avro.codec".to_owned(), codec.as_bytes().to_vec()));
    out.extend(long(header.len()));
    for (name, value) in header {
        out.extend([long(name.len()), name.into_bytes(), long(value.len()), value].concat());
    }
    out.push(0);
    let sync = cursor.take(16, "sync").unwrap();
    out.extend(sync);
    while !cursor.is_at_end() {
        let count = cursor.length("b").unwrap();
        let block = pack(cursor.bytes("b").unwrap());
        out.extend([long(count), long(block.len()), block, sync.to_vec()].concat());
        cursor.take(16, "sync").unwrap();
    }
    out
}

fn snappy(plain: &[u8]) -> Vec<u8> {
    let mut packed = snap::raw::Encoder::new().compress_vec(plain).unwrap();
    let mut crc = flate2::Crc::new();
    crc.update(plain);
    packed.extend(crc.sum().to_be_bytes());
    packed
}

fn bzip2(plain: &[u8]) -> Vec<u8> {
    let mut packer = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::fast());
    std::io::Write::write_all(&mut packer, plain).unwrap();
    packer.finish().unwrap()
}

fn xz(plain: &[u8]) -> Vec<u8> {
    let mut packer = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(0)).unwrap();
    std::io::Write::write_all(&mut packer, plain).unwrap();
    packer.finish().unwrap()
}

type Packer = fn(&[u8]) -> Vec<u8>;

/// Every codec by its name.
const PACKERS: [(&str, Packer); 6] = [
    ("null", <[u8]>::to_vec),
    ("deflate", |plain| {
        let mut packer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packer, plain).unwrap();
        packer.finish().unwrap()
    }),
    ("snappy", snappy),
    ("zstandard", |plain| zstd::encode_all(plain, 1).unwrap()),
    ("bzip2", bzip2),
    ("xz", xz),
];

fn expected(entries: &[Entry]) -> Read {
    entries.iter().map(|entry| (Some(i64::from(entry.status)), entry.path.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn captures_what_the_full_reader_reads(entries in prop::collection::vec(entry(), 0..20), block in 1usize..2000) {
        let plain = write(SCHEMA, entries.iter().map(Entry::avro), Codec::Null, block);
        let whole: Vec<Avro> = Reader::new(plain.as_slice()).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(whole.len(), entries.len());
        let deflated = write(SCHEMA, entries.iter().map(Entry::avro), Codec::Deflate(Default::default()), block);
        prop_assert_eq!(read(&plain, &[0, 100]).unwrap(), expected(&entries));
        prop_assert_eq!(read(&deflated, &[0, 100]).unwrap(), expected(&entries));
        for (codec, pack) in PACKERS.into_iter().filter(|(codec, _)| entries.len() < 6 || *codec != "xz") {
            prop_assert_eq!(read(&repack(&plain, codec, pack), &[0, 100]).unwrap(), expected(&entries), "{}", codec);
        }
    }

    #[test]
    fn damage_is_an_error_or_harmless_and_never_a_panic(
        entries in prop::collection::vec(entry(), 1..6),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = write(SCHEMA, entries.iter().map(Entry::avro), Codec::Null, 100);
        let position = cut.index(bytes.len());
        // A file cut between two blocks reads as a shorter one; everywhere else it is an error.
        if let Ok(found) = read(&bytes[..position], &[0, 100]) {
            prop_assert!(found.len() < entries.len());
        }
        let position = at.index(bytes.len());
        bytes[position] = byte;
        let _ = read(&bytes, &[0, 100]);
    }

    #[test]
    fn damaged_blocks_of_any_codec_never_panic(
        entries in prop::collection::vec(entry(), 1..4),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let plain = write(SCHEMA, entries.iter().map(Entry::avro), Codec::Null, 10_000);
        for (codec, pack) in PACKERS {
            let bytes = repack(&plain, codec, |plain| {
                let mut block = pack(plain);
                for (at, byte) in &damage {
                    let position = at.index(block.len());
                    block[position] = *byte;
                }
                block
            });
            let _ = read(&bytes, &[0, 100]);
        }
    }

    #[test]
    fn noise_behind_a_good_header_never_panics(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = write(SCHEMA, [], Codec::Null, 100);
        bytes.extend(noise);
        let _ = read(&bytes, &[0, 100]);
    }
}

/// A header with the given schema and codec, no blocks, sync marker of zeros.
fn header(schema: &str, codec: &str) -> Vec<u8> {
    repack_header(schema.as_bytes(), codec.as_bytes())
}

fn zigzag(number: i64) -> Vec<u8> {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    let mut out = Vec::new();
    while rest >= 0x80 {
        out.push((rest as u8 & 0x7f) | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [zigzag(bytes.len() as i64), bytes.to_vec()].concat()
}

fn repack_header(schema: &[u8], codec: &[u8]) -> Vec<u8> {
    [
        b"Obj\x01".to_vec(),
        zigzag(2),
        sized(b"avro.schema"),
        sized(schema),
        sized(b"avro.codec"),
        sized(codec),
        vec![0],
        vec![0; 16],
    ]
    .concat()
}

fn file(schema: &str, count: i64, block: &[u8]) -> Vec<u8> {
    [header(schema, "null"), zigzag(count), sized(block), vec![0; 16]].concat()
}

#[test]
fn codecs_that_are_not_read_are_named() {
    for codec in ["brotli", "lz4", ""] {
        let error = read(&header(r#""null""#, codec), &[0, 100]).unwrap_err();
        assert_eq!(error, AvroError::UnknownCodec(codec.to_owned()));
    }
}

#[test]
fn a_wrong_snappy_checksum_is_seen() {
    let plain = write(SCHEMA, [], Codec::Null, 100);
    let mut bytes = repack(&plain, "snappy", snappy);
    let block = snappy(b"");
    let mut broken = block.clone();
    *broken.last_mut().unwrap() ^= 1;
    let sync = bytes[bytes.len() - 16..].to_vec();
    bytes.extend([zigzag(0), sized(&broken), sync].concat());
    assert!(matches!(read(&bytes, &[0, 100]), Err(AvroError::Corrupt(_))));
}

#[test]
fn hostile_lengths_counts_and_depths_end_quickly() {
    let array = r#"{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"array","items":"null"}}]}"#;
    let many = file(array, 1, &[zigzag(i64::MAX), zigzag(0)].concat());
    assert!(matches!(read(&many, &[0, 100]), Err(AvroError::Corrupt(_))));
    let jump = file(array, 1, &[zigzag(-1), zigzag(i64::MAX), zigzag(0)].concat());
    assert!(matches!(read(&jump, &[0, 100]), Err(AvroError::Truncated(_))));
    let smallest = file(array, 1, &[zigzag(i64::MIN), zigzag(0), zigzag(0)].concat());
    assert!(read(&smallest, &[0, 100]).is_ok());
    let negative = file(r#""bytes""#, 1, &zigzag(-5));
    assert!(matches!(read(&negative, &[0, 100]), Err(AvroError::Corrupt(_))));
    // Records without bytes: the count costs nothing, the steps do.
    let empty = file(r#"{"type":"record","name":"r","fields":[]}"#, i64::MAX, &[]);
    assert!(matches!(read(&empty, &[0, 100]), Err(AvroError::Corrupt(_))));
    // A record that contains itself without end.
    let endless = r#"{"type":"record","name":"r","fields":[{"name":"a","type":"r"}]}"#;
    assert_eq!(read(&file(endless, 1, &[]), &[0, 100]), Err(AvroError::TooDeep(64)));
    let nested = format!("{}\"null\"{}", r#"{"type":"array","items":"#.repeat(100), "}".repeat(100));
    assert_eq!(read(&file(&nested, 1, &[]), &[0, 100]), Err(AvroError::TooDeep(64)));
    // Ten records, each naming the next twice: 2^70 values of no bytes.
    let mut wide = r#"{"type":"record","name":"r0","fields":[]}"#.to_owned();
    for level in 1..40 {
        wide = format!(
            r#"{{"type":"record","name":"r{level}","fields":[{{"name":"a","type":{wide}}},{{"name":"b","type":"r{}"}}]}}"#,
            level - 1
        );
    }
    assert!(matches!(
        read(&file(&wide, 1, &[]), &[0, 100]),
        Err(AvroError::Corrupt(_) | AvroError::TooDeep(_) | AvroError::Schema(_))
    ));
    let overlong = [header(r#""null""#, "null"), vec![0xff; 11]].concat();
    assert!(matches!(read(&overlong, &[0, 100]), Err(AvroError::Corrupt(_))));
}

#[test]
fn bombs_are_cut_off() {
    let limits = AvroLimits { block_max_bytes: 1000, ..AvroLimits::default() };
    let zeros = vec![0u8; 100_000];
    let mut deflate = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut deflate, &zeros).unwrap();
    for (codec, block) in [
        ("deflate", deflate.finish().unwrap()),
        ("zstandard", zstd::encode_all(zeros.as_slice(), 1).unwrap()),
        ("snappy", snappy(&zeros)),
        ("bzip2", bzip2(&zeros)),
        ("xz", xz(&zeros)),
        ("null", zeros.clone()),
    ] {
        let bytes = [header(r#""null""#, codec), zigzag(1), sized(&block), vec![0; 16]].concat();
        let container = Container::open(&bytes, &[], limits).unwrap();
        let result = container.for_each(|_| Ok::<_, AvroError>(()));
        assert!(matches!(result, Err(AvroError::TooLarge { .. })), "{codec}: {result:?}");
    }
}

#[test]
fn wanted_fields_must_be_unambiguous() {
    let twice = r#"{"type":"record","name":"r","fields":[
        {"name":"a","type":{"type":"record","name":"s","fields":[{"name":"p","type":"string","field-id":100}]}},
        {"name":"b","type":"s"}]}"#;
    assert!(matches!(read(&header(twice, "null"), &[0, 100]), Err(AvroError::Schema(_))));
    let same_id = r#"{"type":"record","name":"r","fields":[
        {"name":"a","type":"string","field-id":100},{"name":"b","type":"string","field-id":100}]}"#;
    assert!(matches!(read(&header(same_id, "null"), &[0, 100]), Err(AvroError::Schema(_))));
    let in_a_list = r#"{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"array","items":
        {"type":"record","name":"s","fields":[{"name":"p","type":"string","field-id":100}]}}}]}"#;
    let bytes = header(in_a_list, "null");
    let container = Container::open(&bytes, &[100], AvroLimits::default()).unwrap();
    assert_eq!(container.check_has(0, 100), Err(AvroError::MissingField(100)));
    for bad in ["{", "7", r#"{"type":"record","name":"r"}"#, r#""nothing""#, r#"{"type":"fixed","name":"f"}"#] {
        assert!(matches!(read(&header(bad, "null"), &[0, 100]), Err(AvroError::Schema(_))), "{bad}");
    }
    assert_eq!(read(b"PAR1", &[]), Err(AvroError::NotAvro));
}
