//! Versions, delete markers, and copies that are made once.

use lakewarden_core::store::{
    Deleted, Doomed, ETag, ObjectError, ObjectUsage, VersionId, VersionMark, VersionPage, VersionRequest, VersionState,
    Versioning,
};

use super::{Bench, at, bytes, memory, only_if, s3, stale};
use lakewarden_core::store::{ObjectKey, PutCondition};

contract!(memory, s3 =>
    a_copy_is_made_once_and_of_what_was_meant,
    a_bucket_keeps_no_versions_until_it_is_told_to,
    a_deleted_object_comes_back_with_its_marker_gone,
    only_the_newest_version_is_read_and_each_can_go,
    a_suspended_bucket_keeps_what_it_had,
    versions_are_listed_page_by_page,
    requests_on_versions_are_counted,
);

async fn page(bench: &Bench, prefix: &str, after: Option<VersionMark>, max_keys: usize) -> VersionPage {
    let request = VersionRequest { bucket: "lake".into(), prefix: prefix.into(), after, max_keys };
    bench.objects.list_versions(&request).await.unwrap()
}

/// Key, what it is, and whether reads find it.
fn shown(page: &VersionPage) -> Vec<(String, Option<String>, bool)> {
    let etag = |state: &VersionState| match state {
        VersionState::Object { etag, .. } => Some(etag.0.clone()),
        VersionState::DeleteMarker => None,
    };
    page.versions.iter().map(|one| (one.key.clone(), etag(&one.state), one.is_latest)).collect()
}

async fn mark(bench: &Bench, key: &str, etag: &ETag) -> VersionId {
    let doomed = [Doomed { key: key.to_owned(), if_match: Some(etag.clone()) }];
    match &bench.objects.delete_batch("lake", &doomed).await.unwrap()[..] {
        [Deleted::Marked(marker)] => marker.clone(),
        other => panic!("{other:?}"),
    }
}

async fn a_copy_is_made_once_and_of_what_was_meant(bench: &Bench) {
    let tag = bench.put("from", "body").await;
    let to = ObjectKey::new("lake", "aside/from/1");
    let refused = Err(ObjectError::PreconditionFailed(to.clone()));
    assert_eq!(bench.objects.create_copy(&at("from"), &stale(), &to).await, refused);
    assert_eq!(bench.body("aside/from/1").await, None);
    assert_eq!(bench.objects.create_copy(&at("from"), &tag, &to).await, Ok(tag.clone()));
    let other = bench.put("from", "other").await;
    assert_eq!(bench.objects.create_copy(&at("from"), &other, &to).await, refused, "there is one");
    assert_eq!(bench.body("aside/from/1").await.as_deref(), Some("body"));
    let missing = bench.objects.create_copy(&at("missing"), &tag, &at("elsewhere")).await;
    assert_eq!(missing, Err(ObjectError::NotFound(at("missing"))));
}

async fn a_bucket_keeps_no_versions_until_it_is_told_to(bench: &Bench) {
    assert_eq!(bench.objects.versioning("lake").await, Ok(Versioning::Off));
    let tag = bench.put("k", "body").await;
    let listed = page(bench, "", None, 10).await;
    assert_eq!(shown(&listed), [("k".to_owned(), Some(tag.0.clone()), true)]);
    assert_eq!(listed.versions[0].id, VersionId("null".to_owned()));
    let doomed = [Doomed { key: "k".to_owned(), if_match: Some(tag) }];
    assert_eq!(bench.objects.delete_batch("lake", &doomed).await, Ok(vec![Deleted::Gone]));
    assert_eq!(page(bench, "", None, 10).await, VersionPage::default());
    bench.set_versioning("lake", Versioning::Enabled).await;
    assert_eq!(bench.objects.versioning("lake").await, Ok(Versioning::Enabled));
    assert_eq!(bench.objects.versioning("pond").await, Ok(Versioning::Off));
}

async fn a_deleted_object_comes_back_with_its_marker_gone(bench: &Bench) {
    let before = bench.put("before", "from before versions").await;
    bench.set_versioning("lake", Versioning::Enabled).await;
    let tag = bench.put("k", "body").await;
    let meta = bench.objects.head(&at("k")).await.unwrap();
    bench.clock.advance_ms(5_000);
    for (key, tag, body) in [("k", &tag, "body"), ("before", &before, "from before versions")] {
        let marker = mark(bench, key, tag).await;
        assert_eq!(bench.body(key).await, None);
        let listed = page(bench, key, None, 10).await;
        assert_eq!(shown(&listed), [(key.to_owned(), None, true), (key.to_owned(), Some(tag.0.clone()), false)]);
        assert_eq!(listed.versions[0].id, marker);
        for _ in 0..2 {
            bench.objects.delete_version(&at(key), &marker).await.unwrap();
            assert_eq!(bench.body(key).await.as_deref(), Some(body), "removing it twice is removing it once");
        }
    }
    assert_eq!(bench.objects.head(&at("k")).await, Ok(meta), "it is the same object");
}

async fn only_the_newest_version_is_read_and_each_can_go(bench: &Bench) {
    bench.set_versioning("lake", Versioning::Enabled).await;
    let one = bench.put("k", "one").await;
    bench.clock.advance_ms(1_000);
    let marker = mark(bench, "k", &one).await;
    bench.clock.advance_ms(1_000);
    let two = bench.put("k", "two").await;
    let all =
        [("k".to_owned(), Some(two.0), true), ("k".to_owned(), None, false), ("k".to_owned(), Some(one.0), false)];
    let listed = page(bench, "k", None, 10).await;
    assert_eq!(shown(&listed), all);
    bench.objects.delete_version(&at("k"), &marker).await.unwrap();
    assert_eq!(bench.body("k").await.as_deref(), Some("two"), "a marker below changes nothing that is read");
    bench.objects.delete_version(&at("k"), &listed.versions[0].id).await.unwrap();
    assert_eq!(bench.body("k").await.as_deref(), Some("one"), "what is the newest then is read");
    bench.objects.delete_version(&at("k"), &listed.versions[2].id).await.unwrap();
    assert_eq!(bench.body("k").await, None);
    assert_eq!(page(bench, "", None, 10).await, VersionPage::default());
}

async fn a_suspended_bucket_keeps_what_it_had(bench: &Bench) {
    bench.set_versioning("lake", Versioning::Enabled).await;
    let kept = bench.put("k", "kept").await;
    bench.set_versioning("lake", Versioning::Suspended).await;
    assert_eq!(bench.objects.versioning("lake").await, Ok(Versioning::Suspended));
    bench.clock.advance_ms(1_000);
    bench.put("k", "lost").await;
    bench.clock.advance_ms(1_000);
    let tag = bench.put("k", "also lost").await;
    let marker = mark(bench, "k", &tag).await;
    assert_eq!(marker, VersionId("null".to_owned()));
    let listed = page(bench, "k", None, 10).await;
    assert_eq!(shown(&listed), [("k".to_owned(), None, true), ("k".to_owned(), Some(kept.0), false)]);
    bench.objects.delete_version(&at("k"), &marker).await.unwrap();
    assert_eq!(bench.body("k").await.as_deref(), Some("kept"));
}

async fn versions_are_listed_page_by_page(bench: &Bench) {
    bench.put("p/a é", "null version").await;
    bench.set_versioning("lake", Versioning::Enabled).await;
    for round in 0..3 {
        bench.clock.advance_ms(1_000);
        for key in ["p/a é", "p/b", "q"] {
            let put = bench.objects.put(&at(key), bytes(&format!("{round}")), &only_if(PutCondition::Always)).await;
            if round == 1 {
                bench.clock.advance_ms(1_000);
                mark(bench, key, &put.unwrap()).await;
            }
        }
    }
    let whole = page(bench, "p/", None, 1000).await;
    assert_eq!((whole.versions.len(), whole.next.clone()), (9, None));
    for size in 1..=4 {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = page(bench, "p/", after, size).await;
            assert!(page.versions.len() <= size);
            all.extend(page.versions);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(all, whole.versions, "{size} at a time");
    }
    let behind = VersionMark { key: "p/a é".to_owned(), id: None };
    assert!(page(bench, "p/", Some(behind), 10).await.versions.iter().all(|one| one.key == "p/b"));
    let mut after = None;
    for _ in 0..9 {
        // What was listed goes before the next page is asked for.
        let page = page(bench, "p/", after, 1).await;
        bench.objects.delete_version(&at(&page.versions[0].key), &page.versions[0].id).await.unwrap();
        after = None;
    }
    assert_eq!(page(bench, "p/", None, 10).await, VersionPage::default());
}

async fn requests_on_versions_are_counted(bench: &Bench) {
    let (objects, none) = (&bench.objects, ObjectUsage::default());
    let tag = bench.put("k", "12345").await;
    let mut mark = objects.object_usage();
    let mut expect = |expected: ObjectUsage, what: &str| assert_eq!(bench.used_since(&mut mark), expected, "{what}");
    objects.versioning("lake").await.unwrap();
    expect(ObjectUsage { versionings: 1, ..none }, "versioning");
    page(bench, "", None, 10).await;
    expect(ObjectUsage { version_lists: 1, ..none }, "a page of versions");
    objects.create_copy(&at("k"), &tag, &at("l")).await.unwrap();
    objects.create_copy(&at("k"), &tag, &at("l")).await.unwrap_err();
    expect(ObjectUsage { copies: 2, ..none }, "copies move no bytes through us");
    objects.delete_version(&at("l"), &VersionId("null".to_owned())).await.unwrap();
    expect(ObjectUsage { version_deletes: 1, ..none }, "a version");
    assert_eq!(bench.body("l").await, None);
}
