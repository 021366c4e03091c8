//! A world in memory in which samples are handled.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use lakewarden_core::ports::{App, Deadline, Settings};
use lakewarden_core::store::memory::MemoryWorld;
use lakewarden_core::store::{ObjectKey, Objects, PutOptions, ReadObjects};
use serde_json::Value;

use super::{folder, read_json, samples, text};

/// 2026-11-29 08:30 UTC.
const NOW_MS: i64 = 1_795_941_000_000;
const TIME_LIMIT_MS: i64 = 900_000;

pub struct Bench {
    pub world: MemoryWorld,
    app: App,
}

impl Bench {
    pub fn new() -> Self {
        let world = MemoryWorld::new(NOW_MS);
        let app = App::new(world.ports.clone(), Settings::default());
        Self { world, app }
    }

    /// Brings about a state of `expected.json` by its name.
    pub async fn prepare(&self, expected: &Value, setup: &str) -> Result<(), String> {
        let steps = expected["setups"][setup].as_array().ok_or_else(|| format!("there is no setup `{setup}`"))?;
        for step in steps {
            if let Some(put) = step["put"].as_str() {
                self.put_folder(put).await;
            } else {
                let file = text(step, "event");
                let answer = self.handle(expected, file).await.map_err(|error| format!("setup {file}: {error}"))?;
                if answer["statusCode"].as_i64().is_some_and(|status| status >= 300) {
                    return Err(format!("setup {file}: {answer}"));
                }
            }
        }
        Ok(())
    }

    async fn put_folder(&self, name: &str) {
        let root = folder().join("objects").join(name);
        let mut files = Vec::new();
        list_files(&root, &mut files);
        assert!(!files.is_empty(), "{} holds no objects", root.display());
        for path in files {
            let relative = path.strip_prefix(&root).unwrap().to_str().unwrap();
            let (bucket, key) = relative.split_once('/').unwrap();
            let bytes = Bytes::from(std::fs::read(&path).unwrap());
            self.world.objects.put(&ObjectKey::new(bucket, key), bytes, &PutOptions::default()).await.unwrap();
        }
    }

    /// Hands a sample to its function. The body of an HTTP answer is opened, to be compared as JSON.
    pub async fn handle(&self, expected: &Value, file: &str) -> Result<Value, String> {
        let sample = samples(expected).iter().find(|sample| text(sample, "file") == file);
        let function = text(sample.ok_or_else(|| format!("{file} is no sample"))?, "function");
        let mut event = read_json(file);
        self.correct_etags(&mut event).await;
        let mut answer = self.call(function, event).await?;
        open_body(&mut answer);
        Ok(answer)
    }

    async fn call(&self, function: &str, event: Value) -> Result<Value, String> {
        let app = &self.app;
        let deadline = Deadline::in_ms(self.world.clock.as_ref(), TIME_LIMIT_MS);
        let request = |event| serde_json::from_value(event).map_err(|error| format!("not a request: {error}"));
        let failed = |error: &dyn std::error::Error| format!("{function} failed: {error}");
        match function {
            "catalog-api" => to_json(&catalog_api::handle(app, request(event)?, deadline).await),
            "commit-api" => to_json(&commit_api::handle(app, request(event)?, deadline).await),
            "catalog-worker" => catalog_worker::handle(app, event, deadline).await.map_err(|error| failed(&error)),
            "commit-validator" => commit_validator::handle(app, event, deadline).await.map_err(|error| failed(&error)),
            "orphan-sweeper" => orphan_sweeper::handle(app, event, deadline).await.map_err(|error| failed(&error)),
            "sweep-planner" => sweep_planner::handle(app, event, deadline).await.map_err(|error| failed(&error)),
            other => Err(format!("there is no function `{other}`")),
        }
    }

    /// Events carry the ETags that S3 gives; the store in memory gives others. An object that is not there keeps its own.
    async fn correct_etags(&self, event: &mut Value) {
        let mut found = Vec::new();
        collect_tags(event, &mut found);
        for (key, given) in found {
            if let Ok(meta) = self.world.objects.head(&ObjectKey::new("lake", key)).await {
                *event = replace_text(event.take(), &given, &meta.etag.0);
            }
        }
    }
}

fn list_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() { list_files(&path, files) } else { files.push(path) }
    }
}

fn to_json(answer: &impl serde::Serialize) -> Result<Value, String> {
    serde_json::to_value(answer).map_err(|error| error.to_string())
}

fn open_body(answer: &mut Value) {
    let Some(body) = answer["statusCode"].is_number().then(|| answer["body"].as_str()).flatten() else { return };
    let bytes = match answer["isBase64Encoded"].as_bool() {
        Some(true) => STANDARD.decode(body).expect("the answer says that its body is base64"),
        _ => body.as_bytes().to_vec(),
    };
    if let Ok(json) = serde_json::from_slice::<Value>(&bytes) {
        answer["body"] = json;
    }
}

/// Key and ETag of every object that an event, or an event inside a message of it, speaks of.
fn collect_tags(event: &Value, found: &mut Vec<(String, String)>) {
    match event {
        Value::Object(members) => {
            if let Some(key) = members.get("key").and_then(Value::as_str) {
                if let Some(tag) = members.get("eTag").and_then(Value::as_str) {
                    // S3's own notifications encode keys as forms do; in the samples only blanks need it.
                    found.push((key.replace('+', " "), tag.to_owned()));
                } else if let Some(tag) = members.get("etag").and_then(Value::as_str) {
                    found.push((key.to_owned(), tag.to_owned()));
                }
            }
            members.values().for_each(|member| collect_tags(member, found));
        }
        Value::Array(entries) => entries.iter().for_each(|entry| collect_tags(entry, found)),
        Value::String(inner) => {
            if let Ok(inner @ Value::Object(_)) = serde_json::from_str(inner) {
                collect_tags(&inner, found);
            }
        }
        _ => {}
    }
}

fn replace_text(value: Value, from: &str, to: &str) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace(from, to)),
        Value::Array(entries) => entries.into_iter().map(|entry| replace_text(entry, from, to)).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, member)| (name, replace_text(member, from, to))).collect()
        }
        other => other,
    }
}
