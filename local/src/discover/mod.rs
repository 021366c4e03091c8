//! `lakewarden discover`: registers the partitions whose folders lie under a table, in Hive's layout.
//!
//! Nothing that is registered is changed or removed. Folders that are none of partitions, and partitions that have no
//! folder, are reported.

mod layout;
mod walk;

use std::collections::BTreeMap;

use aws_config::{BehaviorVersion, Region};
use aws_credential_types::Credentials;
use lakewarden_core::location::{Location, LocationError, split_uri};
use lakewarden_core::partition::KeyType;
use serde_json::{Value, json};
use thiserror::Error;

use crate::cli::DiscoverArgs;
use crate::progress::Progress;
use crate::register::{BatchOutcome, Catalog, values_of};
use crate::signed::{AwsAccess, CallError};

use layout::PartitionKey;
use walk::{Place, Walked, walk};

/// Partitions that are sent to the catalog before the bar moves.
const STEP_PARTITIONS: usize = 800;
/// Lines of each kind of report; the rest is counted.
const SHOWN_LINES: usize = 100;

/// Partitions could not be found or registered.
#[derive(Debug, Error)]
pub enum DiscoverError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("there is no table `{table}` in database `{database}`")]
    NoTable { database: String, table: String },
    #[error("the table has no partition keys, so there is nothing to find")]
    NoKeys,
    #[error("the table has no location")]
    NoLocation,
    #[error("the table's location: {0}")]
    Location(#[from] LocationError),
    #[error("this is a table of format {0}: its own metadata says which files belong to it, folders do not")]
    TableFormat(&'static str),
    #[error("{place} cannot be listed: {cause}")]
    Storage { place: String, cause: String },
    #[error("{0} partitions could not be registered (see above); run the same command again to try them once more")]
    Incomplete(usize),
}

/// The table whose partitions are looked for.
struct Table {
    keys: Vec<PartitionKey>,
    place: Place,
    descriptor: Value,
}

/// A registered partition's location, by its values.
type Registered = BTreeMap<Vec<String>, String>;

/// Finds, compares, and unless it is a dry run registers.
///
/// # Errors
/// When catalog or storage cannot be read, the table is none for this, or partitions were refused.
pub async fn run(args: &DiscoverArgs) -> Result<(), DiscoverError> {
    let access = AwsAccess::load(None, args.region.as_deref()).await;
    let catalog = Catalog::open(&args.at.gateway, &access)?;
    let found = catalog.table(&args.database, &args.table).await?;
    let found =
        found.ok_or_else(|| DiscoverError::NoTable { database: args.database.clone(), table: args.table.clone() })?;
    let table = read_table(&found)?;
    let s3 = storage(args, &catalog).await?;
    let mut progress = Progress::new(None);
    let walked = walk(&s3, &table.place, &table.keys, &mut progress).await?;
    let registered = registered(&catalog, args, &mut progress).await?;
    progress.finish();
    report_odd(&table, &walked, &registered);
    let new: Vec<(&Vec<String>, String)> = walked
        .partitions
        .iter()
        .filter(|(values, _)| !registered.contains_key(*values))
        .map(|(values, prefix)| (values, location(&table, prefix)))
        .collect();
    let there = walked.partitions.len() - new.len();
    if args.dry_run {
        for (values, location) in &new {
            println!("would register {} at {location}", json!(values));
        }
        println!("Would register {} partitions; {there} are registered already.", new.len());
        return Ok(());
    }
    let outcome = register(&catalog, args, &table, &new).await?;
    let there = there as u64 + outcome.there;
    println!("Registered {} partitions; {there} were registered already.", outcome.created);
    if outcome.failed.is_empty() { Ok(()) } else { Err(DiscoverError::Incomplete(outcome.failed.len())) }
}

fn read_table(found: &Value) -> Result<Table, DiscoverError> {
    let parameter = |name: &str| {
        let value = found.get("Parameters").and_then(|parameters| parameters.get(name));
        value.and_then(Value::as_str).unwrap_or_default().to_lowercase()
    };
    for (format, shown) in [("iceberg", "Iceberg"), ("delta", "Delta"), ("hudi", "Hudi")] {
        if parameter("table_type") == format || parameter("spark.sql.sources.provider") == format {
            return Err(DiscoverError::TableFormat(shown));
        }
    }
    let keys = found.get("PartitionKeys").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text = |key: &Value, member: &str| key.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    let keys: Vec<PartitionKey> = keys
        .iter()
        .map(|key| (text(key, "Name"), text(key, "Type")))
        .map(|(name, type_name)| PartitionKey { name, key_type: KeyType::of(&type_name), type_name })
        .collect();
    if keys.is_empty() {
        return Err(DiscoverError::NoKeys);
    }
    let descriptor = found.get("StorageDescriptor").cloned().unwrap_or_default();
    let location = descriptor.get("Location").and_then(Value::as_str).filter(|location| !location.is_empty());
    let (bucket, key) = split_uri(location.ok_or(DiscoverError::NoLocation)?)?;
    let key = key.trim_end_matches('/');
    let prefix = if key.is_empty() { String::new() } else { format!("{key}/") };
    let place = Place { bucket: bucket.to_owned(), prefix };
    Ok(Table { keys, place, descriptor })
}

/// The laptop's S3 if a laptop answers, else what the environment says.
async fn storage(args: &DiscoverArgs, catalog: &Catalog) -> Result<aws_sdk_s3::Client, DiscoverError> {
    let mut loader = aws_config::defaults(BehaviorVersion::latest());
    let mut has_endpoint = std::env::var("AWS_ENDPOINT_URL_S3").is_ok_and(|url| !url.is_empty());
    if let Some(region) = &args.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(endpoint) = &args.s3_endpoint {
        loader = loader.endpoint_url(endpoint);
        has_endpoint = true;
    } else if let Some(laptop) = catalog.laptop_endpoints().await? {
        let text = |name: &str| laptop.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let credentials = Credentials::new(text("access_key"), text("secret_key"), None, None, "laptop");
        loader = loader.endpoint_url(text("s3")).credentials_provider(credentials).region(Region::new(text("region")));
        has_endpoint = true;
    }
    let config = aws_sdk_s3::config::Builder::from(&loader.load().await).force_path_style(has_endpoint);
    Ok(aws_sdk_s3::Client::from_conf(config.build()))
}

async fn registered(
    catalog: &Catalog,
    args: &DiscoverArgs,
    progress: &mut Progress,
) -> Result<Registered, DiscoverError> {
    let mut registered = Registered::new();
    let mut token = None;
    loop {
        let (page, next) = catalog.partitions(&args.database, &args.table, token.as_deref()).await?;
        for partition in page {
            let location = partition.pointer("/StorageDescriptor/Location").and_then(Value::as_str);
            registered.insert(values_of(&partition), location.unwrap_or_default().to_owned());
        }
        progress.set(registered.len() as u64, "registered partitions read");
        if next.is_none() {
            return Ok(registered);
        }
        token = next;
    }
}

fn location(table: &Table, prefix: &str) -> String {
    format!("s3://{}/{}", table.place.bucket, prefix.trim_end_matches('/'))
}

/// What is not as it should be, on standard error.
fn report_odd(table: &Table, walked: &Walked, registered: &Registered) {
    let bucket = &table.place.bucket;
    let foreign =
        walked.foreign.iter().map(|(prefix, reason)| format!("foreign folder s3://{bucket}/{prefix}: {reason}"));
    report_lines(foreign);
    let root = Location::new(bucket.as_str(), &table.place.prefix);
    let missing = registered.iter().filter(|(values, location)| {
        let is_here = Location::parse(location).is_ok_and(|location| root.contains(&location));
        is_here && !walked.partitions.contains_key(*values)
    });
    report_lines(
        missing.map(|(values, at)| format!("missing folder {at} of the registered partition {}", json!(values))),
    );
    let elsewhere = registered.iter().filter_map(|(values, at)| {
        let found = location(table, walked.partitions.get(values)?);
        let is_same = Location::parse(at).is_ok_and(|at| Location::parse(&found).is_ok_and(|found| found == at));
        (!is_same).then(|| format!("the partition {} is registered at {at}, its folder is {found}", json!(values)))
    });
    report_lines(elsewhere);
    if walked.stray_files > 0 {
        eprintln!("{} files lie beside the folders and belong to no partition", walked.stray_files);
    }
    if walked.hidden > 0 {
        eprintln!("{} hidden folders (beginning with _ or .) were not looked into", walked.hidden);
    }
}

fn report_lines(lines: impl Iterator<Item = String>) {
    let mut count = 0;
    for line in lines {
        count += 1;
        if count <= SHOWN_LINES {
            eprintln!("{line}");
        }
    }
    if count > SHOWN_LINES {
        eprintln!("… and {} more of these", count - SHOWN_LINES);
    }
}

async fn register(
    catalog: &Catalog,
    args: &DiscoverArgs,
    table: &Table,
    new: &[(&Vec<String>, String)],
) -> Result<BatchOutcome, DiscoverError> {
    let mut progress = Progress::new(Some(new.len() as u64));
    let mut sum = BatchOutcome::default();
    for step in new.chunks(STEP_PARTITIONS) {
        let inputs = step.iter().map(|(values, location)| {
            let mut descriptor = table.descriptor.clone();
            if let Some(descriptor) = descriptor.as_object_mut() {
                descriptor.insert("Location".to_owned(), location.as_str().into());
            }
            json!({ "Values": values, "StorageDescriptor": descriptor })
        });
        let outcome = catalog.create_partitions(&args.database, &args.table, inputs.collect()).await?;
        sum.created += outcome.created;
        sum.there += outcome.there;
        sum.failed.extend(outcome.failed);
        progress.set(sum.created + sum.there, "partitions");
    }
    progress.finish();
    report_lines(sum.failed.iter().map(|failure| format!("not registered: {failure}")));
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(location: Value, parameters: Value, keys: Value) -> Value {
        json!({ "Name": "t", "Parameters": parameters, "PartitionKeys": keys, "StorageDescriptor": { "Location": location } })
    }

    #[test]
    fn tables_for_which_folders_say_nothing_are_refused() {
        let keys = json!([{ "Name": "day", "Type": "date" }]);
        let error = |found: Value| read_table(&found).err().map(|error| error.to_string()).unwrap_or_default();
        for (location, parameters, keys, text) in [
            (json!("s3://b/t"), json!({ "table_type": "ICEBERG" }), keys.clone(), "of format Iceberg"),
            (json!("s3://b/t"), json!({ "spark.sql.sources.provider": "DELTA" }), keys.clone(), "of format Delta"),
            (json!("s3://b/t"), json!({}), json!([]), "has no partition keys"),
            (json!(""), json!({}), keys.clone(), "has no location"),
            (json!("hdfs://n/t"), json!({}), keys.clone(), "is not an S3 location"),
        ] {
            let error = error(table(location, parameters, keys));
            assert!(error.contains(text), "{error}");
        }
        for (location, prefix) in [("s3://b/a//t/", "a//t/"), ("s3a://b", ""), ("s3://b/", "")] {
            let read = read_table(&table(json!(location), json!({}), keys.clone())).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((read.place.bucket.as_str(), read.place.prefix.as_str()), ("b", prefix));
        }
    }
}
