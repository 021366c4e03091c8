use super::*;
use crate::store::ReadObjects;
use crate::store::memory::MemoryWorld;

const ROWS: [u64; 6] = [3, 4, 7, 11, 18, 29];
const ROWS_HEX: &str = "d1d3396401000000000000000000000\
    03a3000000100000000000500100000000300040007000b0012001d00";
const ROWS_Z85: &str = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L";

fn root() -> Location {
    Location::new("lake", "wh/t")
}

fn rows() -> RowSet {
    ROWS.into_iter().collect()
}

fn vector(storage_type: &str, text: &str, offset: Option<i64>, size: i64, cardinality: i64) -> DeletionVector {
    DeletionVector {
        storage_type: storage_type.into(),
        path_or_inline_dv: text.into(),
        offset,
        size_in_bytes: size,
        cardinality,
    }
}

#[test]
fn known_rows_have_known_bytes() {
    assert_eq!(hex::encode(rows::encode(&rows())), ROWS_HEX);
    let written = inline(&rows());
    assert_eq!(written, vector("i", ROWS_Z85, None, 44, 6));
    assert_eq!(written.id(), format!("i{ROWS_Z85}"));
    assert_eq!(rows::decode(&hex::decode(ROWS_HEX).unwrap()).unwrap(), rows());
}

#[test]
fn a_uuid_and_its_folder_make_a_path() {
    let file = |text: &str| locate(&root(), &vector("u", text, Some(4), 1, 1), Reach::Inside);
    let name = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin";
    let at = |key: String| Place::File { at: ObjectKey::new("lake", key), offset: 4 };
    assert_eq!(file("ab^-aqEH.-t@S}K{vb[*k^").unwrap(), at(format!("wh/t/ab/{name}")));
    assert_eq!(file("^-aqEH.-t@S}K{vb[*k^").unwrap(), at(format!("wh/t/{name}")));
    assert_eq!(file("a%2Fb^-aqEH.-t@S}K{vb[*k^").unwrap(), at(format!("wh/t/a%2Fb/{name}")), "no URI, not decoded");
    let text = relative_path(&z85::encode(Uuid::from_u128(7).as_bytes())).unwrap();
    assert_eq!(text, path_of("", Uuid::from_u128(7)));
}

#[test]
fn descriptors_that_lead_nowhere_have_names() {
    let place = |storage: &str, text: &str, offset, size| {
        let error = locate(&root(), &vector(storage, text, offset, size, 1), Reach::Inside).unwrap_err();
        (format!("{error:?}").split([' ', '(']).next().unwrap().to_owned(), error.class())
    };
    let uuid = "^-aqEH.-t@S}K{vb[*k^";
    for (storage, text, offset, size, expected) in [
        ("x", uuid, None, 1, "StorageType"),
        ("u", "short", None, 1, "Descriptor"),
        ("u", "ä^-aqEH.-t@S}K{vb[*k", None, 1, "Descriptor"),
        ("u", "#-aqEH.-t@S}K{vb[*k^", None, 1, "Descriptor"),
        ("u", "../x^-aqEH.-t@S}K{vb[*k^", None, 1, "Path"),
        ("u", "_delta_log^-aqEH.-t@S}K{vb[*k^", None, 1, "Path"),
        ("u", uuid, Some(0), 1, "Descriptor"),
        ("u", uuid, Some(-1), 1, "Descriptor"),
        ("u", uuid, None, 0, "Descriptor"),
        ("u", uuid, None, -5, "Descriptor"),
        ("p", "a/b.bin", None, 1, "Descriptor"),
        ("p", "s3://other/b.bin", None, 1, "Path"),
        ("r", "../b.bin", None, 1, "Path"),
        ("i", "#####", None, 4, "Descriptor"),
    ] {
        let (name, class) = place(storage, text, offset, size);
        assert_eq!((name.as_str(), class), (expected, "LAKEWARDEN_DELETION_VECTOR_DESCRIPTOR"), "{storage} {text}");
    }
    assert_eq!(place("u", uuid, None, 1 << 40).0, "TooLarge");
    assert_eq!(place("i", ROWS_Z85, None, 40).1, "DELTA_DELETION_VECTOR_SIZE_MISMATCH");
    assert_eq!(place("i", ROWS_Z85, None, 45).1, "DELTA_DELETION_VECTOR_SIZE_MISMATCH");
    let clone = vector("p", "s3://other/x/deletion_vector_1.bin", Some(1), 1, 1);
    let at = ObjectKey::new("other", "x/deletion_vector_1.bin");
    assert_eq!(locate(&root(), &clone, Reach::Anywhere).unwrap(), Place::File { at, offset: 1 });
}

#[tokio::test]
async fn several_vectors_share_a_file_and_each_is_one_request() {
    let world = MemoryWorld::new(0);
    let objects = &*world.objects;
    let sets = [rows(), (0_u64..70_000).collect(), [1_u64 << 40].into_iter().collect()];
    let vectors = write(objects, &root(), Uuid::from_u128(9), &sets.each_ref()).await.unwrap();
    assert_eq!(vectors.iter().map(|vector| vector.offset).collect::<Vec<_>>()[..2], [Some(1), Some(1 + 4 + 44 + 4)]);
    for (set, vector) in sets.iter().zip(&vectors) {
        let before = objects.object_usage();
        assert_eq!(&read(objects, &root(), vector).await.unwrap(), set);
        let used = objects.object_usage().since(&before);
        assert_eq!((used.gets, used.heads, used.lists), (1, 0, 0));
        assert!(used.bytes_read <= vector.offset.unwrap() as u64 + vector.size_in_bytes as u64 + 8);
        assert_eq!(&check(objects, &root(), vector, Some(set.max().unwrap() + 1), Age::New).await.unwrap(), set);
    }
    // A large one, and one far behind: the file's version is read by itself.
    let far = [(0_u64..600_000).filter(|row| row % 3 == 0).collect(), rows()];
    let far_vectors = write(objects, &root(), Uuid::from_u128(10), &far.each_ref()).await.unwrap();
    for ((set, vector), (gets, before_it)) in far.iter().zip(&far_vectors).zip([(1, 1), (2, 1)]) {
        let before = objects.object_usage();
        assert_eq!(&read(objects, &root(), vector).await.unwrap(), set);
        let used = objects.object_usage().since(&before);
        assert_eq!((used.gets, used.bytes_read), (gets, before_it + vector.size_in_bytes as u64 + 8));
    }
    let without_offset = DeletionVector { offset: None, ..vectors[0].clone() };
    assert_eq!(read(objects, &root(), &without_offset).await.unwrap(), rows());
    let by_path = DeletionVector {
        storage_type: "p".into(),
        path_or_inline_dv: "s3://lake/wh/t/deletion_vector_00000000-0000-0000-0000-000000000009.bin".into(),
        ..vectors[0].clone()
    };
    assert_eq!(check(objects, &root(), &by_path, Some(30), Age::New).await.unwrap(), rows());
    let relative = DeletionVector {
        storage_type: "r".into(),
        path_or_inline_dv: "deletion_vector_00000000-0000-0000-0000-000000000009.bin".into(),
        ..vectors[0].clone()
    };
    assert_eq!(check(objects, &root(), &relative, Some(30), Age::New).await.unwrap(), rows());
    let again = write(objects, &root(), Uuid::from_u128(9), &[&rows()]).await;
    assert!(matches!(again, Err(ObjectError::PreconditionFailed(_))));
}

#[tokio::test]
async fn every_defect_has_its_class() {
    let world = MemoryWorld::new(0);
    let objects = &*world.objects;
    let (file, vectors) = encode_file(Uuid::from_u128(9), &[&rows()]);
    let good = vectors[0].clone();
    let at = root().object("deletion_vector_00000000-0000-0000-0000-000000000009.bin");
    let put = |bytes: Vec<u8>| {
        let at = at.clone();
        async move { objects.put(&at, bytes.into(), &PutOptions::default()).await.unwrap() }
    };
    let class = |vector: DeletionVector, records: Option<u64>| async move {
        check(objects, &root(), &vector, records, Age::New).await.map_err(|error| error.class())
    };
    assert_eq!(class(good.clone(), Some(30)).await, Err("DELTA_FILE_NOT_FOUND_DETAILED"));
    put(file.clone()).await;
    assert_eq!(class(good.clone(), Some(30)).await, Ok(rows()));
    let with = |offset, size, cardinality| DeletionVector {
        offset: Some(offset),
        size_in_bytes: size,
        cardinality,
        ..good.clone()
    };
    for (vector, records, expected) in [
        (with(1, 44, 6), None, "DELTA_DELETION_VECTOR_MISSING_NUM_RECORDS"),
        (with(1, 44, 6), Some(29), "DELTA_DELETION_VECTOR_INVALID_ROW_INDEX"),
        (with(1, 44, 5), Some(30), "DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH"),
        (with(1, 44, -1), Some(30), "DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH"),
        (with(1, 43, 6), Some(30), "DELTA_DELETION_VECTOR_SIZE_MISMATCH"),
        (with(1, 45, 6), Some(30), "DELTA_DELETION_VECTOR_SIZE_MISMATCH"),
        (with(2, 44, 6), Some(30), "DELTA_DELETION_VECTOR_SIZE_MISMATCH"),
        (with(1_000, 44, 6), Some(30), "DELTA_DELETION_VECTOR_SIZE_MISMATCH"),
    ] {
        assert_eq!(class(vector.clone(), records).await, Err(expected), "{vector:?} {records:?}");
    }
    // The first byte tells the version, also of vectors that do not lie behind it.
    let large: RowSet = (0_u64..600_000).filter(|row| row % 3 == 0).collect();
    let (mut several, of_several) = encode_file(Uuid::from_u128(9), &[&rows(), &large, &rows()]);
    for version in [0, 2, 7] {
        several[0] = version;
        put(several.clone()).await;
        for vector in &of_several {
            let error = check(objects, &root(), vector, Some(700_000), Age::New).await.unwrap_err();
            let names = (error.reason(), error.class());
            let expected = ("DELETION_VECTOR_FILE_VERSION", "LAKEWARDEN_DELETION_VECTOR_UNREADABLE");
            assert_eq!(names, expected, "{version} {vector:?}");
            assert_eq!(read(objects, &root(), vector).await.unwrap_err(), error);
        }
    }
    let mut flipped = file.clone();
    flipped[20] ^= 1;
    put(flipped).await;
    assert_eq!(class(good.clone(), Some(30)).await, Err("DELTA_DELETION_VECTOR_CHECKSUM_MISMATCH"));
    put(file[..file.len() - 4].to_vec()).await;
    assert_eq!(class(good.clone(), Some(30)).await, Err("DELTA_DELETION_VECTOR_SIZE_MISMATCH"));
    let mut other = file;
    other[5] = 0;
    let crc = crc32(&other[5..49]);
    other[49..].copy_from_slice(&crc.to_be_bytes());
    put(other).await;
    assert_eq!(class(good, Some(30)).await, Err("LAKEWARDEN_DELETION_VECTOR_UNREADABLE"));
}

/// What the log says is read; what is new must be read by everybody.
#[tokio::test]
async fn new_vectors_are_written_so_that_every_engine_reads_them() {
    let world = MemoryWorld::new(0);
    let objects = &*world.objects;
    let vectors = write(objects, &root(), Uuid::from_u128(9), &[&rows()]).await.unwrap();
    let path = |scheme: &str| DeletionVector {
        storage_type: "p".into(),
        path_or_inline_dv: format!("{scheme}://lake/wh/t/deletion_vector_00000000-0000-0000-0000-000000000009.bin"),
        ..vectors[0].clone()
    };
    let old = of_old_format();
    let offset = DeletionVector { offset: Some(1), ..inline(&rows()) };
    for (vector, rows, expected) in [
        (path("s3"), rows(), None),
        (path("s3a"), rows(), Some("DELETION_VECTOR_DESCRIPTOR")),
        (inline(&rows()), rows(), None),
        (offset, rows(), Some("DELETION_VECTOR_DESCRIPTOR")),
        (old, [0, 2].into_iter().collect(), Some("DELETION_VECTOR_OLD_FORMAT")),
    ] {
        assert_eq!(read(objects, &root(), &vector).await.unwrap(), rows, "{vector:?}");
        let found = check(objects, &root(), &vector, Some(30), Age::New).await.map_err(|error| error.reason());
        assert_eq!(found.err(), expected, "{vector:?}");
        assert_eq!(check(objects, &root(), &vector, Some(30), Age::Known).await.unwrap(), rows, "{vector:?}");
    }
}

/// The protocol document's own example of an inline vector is of an older, big-endian encoding.
#[test]
fn the_old_example_is_refused() {
    let text = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L";
    let payload = inline_payload(text, 40).unwrap();
    assert!(matches!(rows::decode(&payload), Err(RowsError::Magic(_))));
}
