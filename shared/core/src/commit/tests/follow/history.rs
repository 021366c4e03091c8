//! Made-up histories, told in any order.

use proptest::prelude::*;

use super::*;

/// One commit of a made-up history.
#[derive(Clone, Debug)]
enum Step {
    Add(u8, Option<i64>),
    Remove(u8),
    Hide(u8, u8),
    Again(u8),
}

fn step() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        4 => (0_u8..5, prop::option::weighted(0.8, 1_i64..50)).prop_map(|(p, rows)| Step::Add(p, rows)),
        2 => any::<u8>().prop_map(Step::Remove),
        1 => (any::<u8>(), 1_u8..5).prop_map(|(file, rows)| Step::Hide(file, rows)),
        1 => any::<u8>().prop_map(Step::Again),
    ];
    prop::collection::vec(one, 1..6)
}

/// Writes a history; live files are chosen by number.
async fn write_history(scene: &Scene, history: &[Vec<Step>]) {
    scene.kit.log(0, &scene.kit.creation()).await;
    let mut live: Vec<Json> = Vec::new();
    let mut names = 0;
    for (at, steps) in history.iter().enumerate() {
        let mut lines = Vec::new();
        let mut touched = Vec::new();
        for step in steps {
            names += 1;
            let pick = |number: u8| (!live.is_empty()).then(|| usize::from(number) % live.len());
            match step {
                Step::Add(p, rows) => {
                    let p = ["x", "y", "a b", "ü/=", ""][usize::from(*p)];
                    let mut file = add(&format!("f{names}"), Some(p).filter(|p| !p.is_empty()), rows.unwrap_or(7));
                    if rows.is_none() {
                        file["add"].as_object_mut().unwrap().remove("stats");
                    }
                    lines.push(file.clone());
                    touched.push(file);
                }
                Step::Remove(number) | Step::Hide(number, _) | Step::Again(number) => {
                    let Some(at) = pick(*number) else { continue };
                    let old = live.remove(at);
                    let mut gone = remove_line(old["add"]["path"].as_str().unwrap(), 1);
                    if let Some(vector) = old["add"].get("deletionVector") {
                        gone["remove"]["deletionVector"] = vector.clone();
                    }
                    match step {
                        Step::Hide(_, rows) => {
                            lines.push(gone);
                            let hidden = with_vector(old, "add", &format!("{names}"), i64::from(*rows));
                            lines.push(hidden.clone());
                            touched.push(hidden);
                        }
                        Step::Again(_) => {
                            let mut again = old;
                            again["add"]["dataChange"] = json!(false);
                            lines.push(again.clone());
                            touched.push(again);
                        }
                        _ => lines.push(gone),
                    }
                }
            }
        }
        live.extend(touched);
        if lines.is_empty() {
            lines.push(json!({"commitInfo": {"operation": "nothing"}}));
        }
        scene.kit.log(i64::try_from(at).unwrap() + 1, &lines).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// Whatever happens to the table, and in whatever order, how often and over which crashes it is told: the catalog has
    /// what the log has.
    #[test]
    fn the_catalog_has_what_the_log_has(
        history in prop::collection::vec(step(), 1..14),
        news in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(1_u64..25), any::<bool>()), 1..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let scene = Scene::with_table().await;
            write_history(&scene, &history).await;
            let last = i64::try_from(history.len()).unwrap();
            for (version, crash, is_event) in news {
                let version = i64::try_from(version.index(history.len() + 1)).unwrap();
                let source = if is_event { Source::Event } else { Source::Head };
                if let Some(after) = crash {
                    scene.kit.world.faults.crash_after(after);
                }
                let outcome = scene.follow_as(told(0, version, source), 600_000).await;
                scene.kit.world.faults.revive();
                assert!(crash.is_some() || outcome.is_ok(), "{outcome:?}");
            }
            scene.follow(last).await;
            assert_eq!(scene.numbers().await, scene.logged(last).await);
            assert_eq!(scene.cursor("t").await.unwrap().version, Version(last));
        });
    }
}
