//! What is shown of a commit's partitions: in its verdict, and by its id as a moment.

use super::*;
use crate::commit::audit::{Audited, LogFile, Logged, audit};
use crate::commit::keys::ProposalId;
use crate::commit::proposal::{Proposal, Status, SyncState};
use crate::store::ETag;

#[tokio::test]
async fn a_commit_of_another_writer_is_a_moment_too() {
    let scene = Scene::with_table().await;
    scene.kit.log(0, &scene.kit.creation()).await;
    scene.follow(0).await;
    scene.kit.log(1, &[add("p=x/a", Some("x"), 1)]).await;
    let sink = OwnCatalog::new(&scene.app);
    let ctx = Context::new(&scene.app, Deadline::in_ms(&*scene.kit.world.clock, 60_000), &sink);
    let logged = Logged { root: scene.kit.root.clone(), version: Version(1), file: LogFile::Commit, etag: None };
    let Ok(Audited::Judged(id)) = audit(ctx, &[logged]).await.remove(0) else { panic!("it was not judged") };
    let asked = json!({"DatabaseName": "lake", "TableName": "t", "TransactionId": id.to_string()});
    let early = crate::glue::call(&scene.app, "GetPartitions", asked.clone()).await.unwrap_err();
    assert!(format!("{early:?}").contains("ResourceNotReady"), "{early:?}");
    scene.follow(1).await;
    scene.kit.log(2, &[remove_line("p=x/a", 1), add("p=y/b", Some("y"), 1)]).await;
    scene.follow(2).await;
    scene.kit.world.clock.advance_ms(60_000);
    let answer = crate::glue::call(&scene.app, "GetPartitions", asked).await.unwrap();
    let values: Vec<&Json> = answer["Partitions"].as_array().unwrap().iter().map(|one| &one["Values"]).collect();
    assert_eq!(values, [&json!(["x"])]);
}

fn left_to_a_worker(scene: &Scene, version: i64, sync: SyncState) -> Proposal {
    let staged = ("k".into(), ETag("e".into()));
    let id = ProposalId(uuid::Uuid::from_u128(u128::try_from(version).unwrap()));
    let status = Status::Committed { version: Version(version) };
    Proposal { status, sync, ..Proposal::received(&scene.kit.root, Generation(0), id, staged, 1) }
}

#[tokio::test]
async fn what_was_left_to_a_worker_is_shown_as_it_is_by_now() {
    let scene = Scene::with_table().await;
    scene.kit.log(0, &scene.kit.creation()).await;
    scene.follow(0).await;
    scene.kit.log(1, &[add("p=x/a", Some("x"), 1)]).await;
    scene.kit.log(2, &[add("p=y/b", Some("y"), 1)]).await;
    scene.follow(1).await;
    let queued = SyncState::Queued("a worker goes on with it".into());
    let mut shown = [
        left_to_a_worker(&scene, 1, queued.clone()),
        left_to_a_worker(&scene, 2, SyncState::Failed("away".into())),
        left_to_a_worker(&scene, 1, SyncState::Done("1 partitions created, 0 changed, 0 removed".into())),
    ];
    let stored = shown.clone();
    follow::look_up(&scene.app.ports, &scene.kit.root, &mut shown).await.unwrap();
    assert_eq!(shown[0].sync, SyncState::Done("the catalog has followed up to version 1".into()));
    assert!(shown[0].synced_ms.is_some());
    assert_eq!(shown[1..], stored[1..], "what is not there yet, and what was said already, stays");
    scene.follow(2).await;
    follow::look_up(&scene.app.ports, &scene.kit.root, &mut shown).await.unwrap();
    assert_eq!(shown[1].sync, SyncState::Done("the catalog has followed up to version 2".into()));
    // Nothing is asked where nothing is open.
    scene.kit.world.faults.forget_calls();
    follow::look_up(&scene.app.ports, &scene.kit.root, &mut shown).await.unwrap();
    assert_eq!(scene.kit.world.faults.calls().len(), 0);
}
