//! What writers have announced stays: while the lease lasts, one retention longer, and at every moment of a run.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::super::testkit::*;
use super::super::*;
use crate::glue::{GlueException, GlueExceptionName};
use crate::sweep::leases::{grant_in, list_in, release_in, renew_in};

const ORPHAN: &str = "wh/t/data/orphan.parquet";

async fn grant(lake: &Lake, body: Value) -> Result<Value, GlueException> {
    grant_in(&lake.app, lake.directory.as_ref(), "db", "T", &body).await
}

#[tokio::test]
async fn a_lease_protects_while_it_lasts_and_one_retention_longer() {
    for body in [
        json!({"prefixes": ["s3a://lake/wh/t/data/"]}),
        json!({"prefixes": ["s3://lake/wh/t/data/orph"]}),
        json!({"prefixes": ["s3a://lake/wh/t//data//o"]}),
        json!({"keys": [format!("s3://lake/{ORPHAN}")]}),
        json!({"keys": ["s3a://lake/wh/t/data//orphan.parquet"]}),
    ] {
        let lake = Lake::new();
        with_old_orphan(&lake).await;
        let lease = grant(&lake, body.clone()).await.unwrap();
        let id = lease["lease_id"].as_str().unwrap();
        let (record, gone) = lake.gone().await;
        assert_eq!((counts(&record).get("lease"), gone.len()), (Some(&1), 0), "{body}");
        let heartbeat = json!({"ttl_seconds": 3600});
        renew_in(&lake.app, lake.directory.as_ref(), "db", "t", id, &heartbeat).await.unwrap();
        lake.days(3);
        assert_eq!(lake.gone().await.1.len(), 0, "run out, and protects still");
        lake.world.clock.advance_ms(3_600_001);
        assert_eq!(lake.gone().await.1.len(), 1, "{body}");
        let listed = list_in(&lake.app, lake.directory.as_ref(), "db", "t", None).await.unwrap();
        assert_eq!(listed, json!({"leases": []}), "forgotten");
        let error = renew_in(&lake.app, lake.directory.as_ref(), "db", "t", id, &json!({})).await.unwrap_err();
        assert_eq!(error.name, GlueExceptionName::EntityNotFound);
    }
}

#[tokio::test]
async fn a_lease_that_is_given_back_protects_no_more() {
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    let lease = grant(&lake, json!({"prefixes": ["s3://lake/wh/t"], "holder": "job 7"})).await.unwrap();
    let id = lease["lease_id"].as_str().unwrap();
    release_in(&lake.app, lake.directory.as_ref(), "db", "t", id).await.unwrap();
    assert_eq!(lake.gone().await.1.len(), 1);
}

#[tokio::test]
async fn requests_that_mean_nothing_are_refused() {
    let lake = Lake::new();
    with_orphan(&lake).await;
    for body in [
        json!({}),
        json!({"prefixes": []}),
        json!({"prefixes": ["s3://lake/wh/u"]}),
        json!({"prefixes": ["s3://lake/wh/t2/x"]}),
        json!({"prefixes": ["/wh/t"]}),
        json!({"keys": ["s3://other/wh/t/x"]}),
        json!({"keys": [1]}),
        json!({"keys": vec!["s3://lake/wh/t/x"; 201]}),
        json!({"prefixes": ["s3://lake/wh/t"], "ttl_seconds": 1}),
        json!({"prefixes": ["s3://lake/wh/t"], "holder": 7}),
    ] {
        assert_eq!(grant(&lake, body.clone()).await.unwrap_err().name, GlueExceptionName::InvalidInput, "{body}");
    }
    let error = grant_in(&lake.app, lake.directory.as_ref(), "db", "none", &json!({})).await.unwrap_err();
    assert_eq!(error.name, GlueExceptionName::EntityNotFound);
}

#[tokio::test]
async fn whatever_the_moment_a_granted_lease_tells_the_truth_about_its_file() {
    let (mut waited, mut kept, mut missed) = (0, 0, 0);
    for calls in 0.. {
        let lake = Lake::new();
        with_old_orphan(&lake).await;
        let request = lake.start("t", Mode::Ordinary).await;
        let answer = Arc::new(Mutex::new(None));
        let (asked, writer) = (answer.clone(), lake.clone());
        let ask = move || -> futures::future::BoxFuture<'static, ()> {
            Box::pin(async move {
                let found = grant(&writer, json!({"keys": [format!("s3://lake/{ORPHAN}")]})).await;
                *asked.lock().unwrap() = Some(found);
            })
        };
        let hook = Hook::new(calls, Box::new(ask));
        lake.run_hooked(&request, &hook).await;
        let exists = lake.keys().contains(ORPHAN);
        let Some(answer) = answer.lock().unwrap().take() else { break };
        match answer {
            Err(error) => {
                assert_eq!(error.name, GlueExceptionName::ResourceNotReady, "{error:?}");
                waited += 1;
            }
            Ok(lease) if lease["missing"] == json!([]) => {
                assert!(exists, "granted before read {calls}");
                kept += 1;
            }
            Ok(_) => {
                assert!(!exists);
                missed += 1;
            }
        }
    }
    assert!(waited > 1 && kept > 10 && missed == 0, "{waited} {kept} {missed}");
    // Afterwards the fence is gone, and the writer is told.
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    lake.gone().await;
    let late = grant(&lake, json!({"keys": [format!("s3://lake/{ORPHAN}")]})).await.unwrap();
    assert_eq!(late["missing"], json!([format!("s3://lake/{ORPHAN}")]));
}

#[tokio::test]
async fn a_fence_of_a_dead_worker_runs_out() {
    for calls in 0.. {
        let lake = Lake::new();
        with_old_orphan(&lake).await;
        let request = lake.start("t", Mode::Ordinary).await;
        lake.world.faults.forget_calls();
        lake.world.faults.crash_after(calls);
        let _ = lake.run(&request).await;
        lake.world.faults.revive();
        let whole = u64::try_from(lake.world.faults.calls().len()).unwrap() <= calls;
        lake.world.clock.advance_ms(items::LEASE_MS);
        grant(&lake, json!({"prefixes": ["s3://lake/wh/t"]})).await.unwrap();
        if whole {
            break;
        }
    }
}

#[tokio::test]
async fn leases_come_in_pages() {
    let lake = Lake::new();
    with_orphan(&lake).await;
    let long = format!("s3://lake/wh/t/data/{}", "x".repeat(900));
    for _ in 0..8 {
        let keys: Vec<String> = (0..200).map(|number| format!("{long}{number}")).collect();
        grant(&lake, json!({ "keys": keys })).await.unwrap();
    }
    let (mut seen, mut pages, mut token) = (std::collections::BTreeSet::new(), 0, None::<String>);
    loop {
        let page = list_in(&lake.app, lake.directory.as_ref(), "db", "t", token.as_deref()).await.unwrap();
        assert!(page.to_string().len() < 2 * 1024 * 1024);
        pages += 1;
        for lease in page["leases"].as_array().unwrap() {
            assert!(seen.insert(lease["lease_id"].as_str().unwrap().to_owned()));
        }
        token = page["next_token"].as_str().map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    assert_eq!((seen.len(), pages), (8, 2));
    assert!(list_in(&lake.app, lake.directory.as_ref(), "db", "t", Some("#")).await.is_err());
}
