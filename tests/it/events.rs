//! Every sample of `events/`, straight against the handlers on the ports in memory, compared with `events/expected.json`.

mod bench;
mod matching;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use bench::Bench;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../events")
}

fn read_json(name: &str) -> Value {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn samples(expected: &Value) -> &[Value] {
    expected["samples"].as_array().expect("expected.json lists samples")
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_else(|| panic!("`{member}` is a text in {value}"))
}

#[tokio::test]
async fn every_sample_answers_as_expected() {
    let expected = read_json("expected.json");
    let mut wrong = Vec::new();
    for sample in samples(&expected) {
        if let Err(difference) = run(&expected, sample).await {
            wrong.push(format!("{}: {difference}", text(sample, "file")));
        }
    }
    assert!(wrong.is_empty(), "{} samples went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

async fn run(expected: &Value, sample: &Value) -> Result<(), String> {
    let bench = Bench::new();
    bench.prepare(expected, text(sample, "setup")).await?;
    let answer = bench.handle(expected, text(sample, "file")).await?;
    matching::check(&sample["expect"], &answer)?;
    for then in sample["then"].as_array().into_iter().flatten() {
        let file = text(then, "file");
        let answer = bench.handle(expected, file).await?;
        matching::check(&then["expect"], &answer).map_err(|difference| format!("then {file}: {difference}"))?;
    }
    let keys: BTreeSet<String> = bench.world.objects.keys("lake").into_iter().collect();
    let named = |member: &str| sample[member].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(key) = named("there").find(|key| !keys.contains(*key)) {
        return Err(format!("there is no object `{key}`"));
    }
    if let Some(key) = named("missing").find(|key| keys.contains(*key)) {
        return Err(format!("there should be no object `{key}`"));
    }
    Ok(())
}

#[test]
fn every_file_is_a_sample_of_its_name() {
    let expected = read_json("expected.json");
    let listed: BTreeSet<&str> = samples(&expected).iter().map(|sample| text(sample, "file")).collect();
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".json") && name != "expected.json" {
            assert_eq!(name.split('-').count(), 3, "{name} should be <source>-<operation>-<case>.json");
            found.insert(name);
        }
    }
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, listed);
}

#[test]
fn every_function_has_a_sample() {
    let expected = read_json("expected.json");
    let tried: BTreeSet<&str> = samples(&expected).iter().map(|sample| text(sample, "function")).collect();
    let functions = folder().join("../functions");
    for entry in std::fs::read_dir(functions).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(tried.contains(name.as_str()), "{name} has no sample");
    }
}
