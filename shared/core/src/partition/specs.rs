//! Partition specs: partitions with one storage descriptor together, so that it is told once.
//!
//! Works on partitions in the shape of the service's protocol, so that whatever a listing can do, specs can.

use std::collections::HashMap;

use serde_json::{Map, Value as Json, json};

use crate::location::Location;

/// `RootPath`, in characters.
const ROOT_PATH_MAX_CHARS: usize = 255;

/// The table that specs are made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub database: String,
    pub table: String,
    pub location: Option<String>,
}

/// Groups partitions. Those under the table's location whose descriptors differ in nothing but the location make one spec
/// each (`PartitionSpecWithSharedSD`: the descriptor once, with the table's location; in each partition's
/// `StorageDescriptor` only its own `Location` is left). All others come as they are, in one last spec
/// (`PartitionListComposingSpec`). Partitions keep their order; specs are in the order of their first partitions.
pub fn plan_specs(root: &Root, partitions: Vec<Json>) -> Vec<Json> {
    let mut shared: Vec<(Map<String, Json>, Vec<Json>)> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut rest = Vec::new();
    for mut partition in partitions {
        let Some(location) = location_under(root, &partition) else {
            rest.push(partition);
            continue;
        };
        let own = Json::Object(Map::from_iter([("Location".to_owned(), Json::String(location))]));
        let descriptor = partition.get_mut("StorageDescriptor").map(|descriptor| std::mem::replace(descriptor, own));
        let Some(Json::Object(mut descriptor)) = descriptor else { continue };
        descriptor.insert("Location".to_owned(), root.location.clone().into());
        let at = *known.entry(super::descriptor::canonical(&descriptor)).or_insert_with(|| {
            shared.push((descriptor, Vec::new()));
            shared.len() - 1
        });
        if let Some((_, group)) = shared.get_mut(at) {
            group.push(partition);
        }
    }
    let with_shared = shared.into_iter().map(|(descriptor, partitions)| {
        let form = json!({ "StorageDescriptor": descriptor, "Partitions": partitions });
        proxy(root, "PartitionSpecWithSharedSD", form)
    });
    let composing = (!rest.is_empty()).then(|| json!({ "Partitions": rest }));
    with_shared.chain(composing.map(|form| proxy(root, "PartitionListComposingSpec", form))).collect()
}

fn proxy(root: &Root, form: &str, spec: Json) -> Json {
    let mut proxy = Map::new();
    proxy.insert("DatabaseName".to_owned(), root.database.as_str().into());
    proxy.insert("TableName".to_owned(), root.table.as_str().into());
    if let Some(path) = root.location.as_deref().and_then(root_path) {
        proxy.insert("RootPath".to_owned(), path.into());
    }
    proxy.insert(form.to_owned(), spec);
    Json::Object(proxy)
}

/// The location, cut at a segment of the path if it is longer than the member may be; none if there is no place to cut.
fn root_path(location: &str) -> Option<&str> {
    let Some((end, _)) = location.char_indices().nth(ROOT_PATH_MAX_CHARS) else {
        return Some(location).filter(|location| !location.is_empty());
    };
    // A slash right behind the limit is a cut as well.
    let cut = location.get(..=end).filter(|kept| kept.ends_with('/')).or(location.get(..end))?;
    let segments = cut.get(..cut.rfind('/')?)?;
    // Not within `s3://`.
    Some(segments).filter(|kept| !kept.is_empty() && !kept.ends_with('/') && !kept.ends_with(':'))
}

/// The partition's location, if it is the table's or below it.
fn location_under(root: &Root, partition: &Json) -> Option<String> {
    let table = root.location.as_deref().filter(|location| !location.is_empty())?;
    let location = partition.pointer("/StorageDescriptor/Location")?.as_str()?;
    let is_under = match (Location::parse(table), Location::parse(location)) {
        (Ok(table), Ok(location)) => table.contains(&location),
        (Err(_), Err(_)) => {
            let table = table.trim_end_matches('/');
            location.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        _ => false,
    };
    is_under.then(|| location.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(location: &str) -> Root {
        Root { database: "d".into(), table: "t".into(), location: Some(location.to_owned()).filter(|l| !l.is_empty()) }
    }

    fn partition(value: &str, location: &str, format: &str) -> Json {
        json!({ "Values": [value], "Parameters": { "rows": value },
            "StorageDescriptor": { "Columns": [], "Location": location, "InputFormat": format } })
    }

    /// Form and values of each spec.
    fn shape(specs: &[Json]) -> Vec<(&'static str, Vec<String>)> {
        let forms = ["PartitionSpecWithSharedSD", "PartitionListComposingSpec"];
        let form = |spec: &Json| forms.into_iter().find(|form| spec.get(*form).is_some()).unwrap();
        let values = |spec: &Json| {
            let partitions = spec[form(spec)]["Partitions"].as_array().unwrap();
            partitions.iter().map(|partition| partition["Values"][0].as_str().unwrap().to_owned()).collect()
        };
        specs.iter().map(|spec| (form(spec), values(spec))).collect()
    }

    #[test]
    fn partitions_that_share_a_descriptor_are_told_together() {
        let partitions = vec![
            partition("1", "s3://b/t/x=1", "parquet"),
            partition("2", "s3://b/t/x=2", "orc"),
            partition("3", "s3://b/elsewhere", "parquet"),
            partition("4", "s3a://b/t//x=4/", "parquet"),
            partition("5", "s3://b/t", "orc"),
            partition("6", "s3://b/t_other/x=6", "parquet"),
            json!({ "Values": ["7"], "StorageDescriptor": { "Columns": [], "InputFormat": "parquet" } }),
        ];
        let specs = plan_specs(&root("s3://b/t/"), partitions.clone());
        let values = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            shape(&specs),
            [
                ("PartitionSpecWithSharedSD", values(&["1", "4"])),
                ("PartitionSpecWithSharedSD", values(&["2", "5"])),
                ("PartitionListComposingSpec", values(&["3", "6", "7"])),
            ]
        );
        assert_eq!(
            specs[0],
            json!({ "DatabaseName": "d", "TableName": "t", "RootPath": "s3://b/t/", "PartitionSpecWithSharedSD": {
                "StorageDescriptor": { "Columns": [], "Location": "s3://b/t/", "InputFormat": "parquet" },
                "Partitions": [
                    { "Values": ["1"], "Parameters": { "rows": "1" }, "StorageDescriptor": { "Location": "s3://b/t/x=1" } },
                    { "Values": ["4"], "Parameters": { "rows": "4" }, "StorageDescriptor": { "Location": "s3a://b/t//x=4/" } },
                ] } })
        );
        assert_eq!(specs[2]["PartitionListComposingSpec"]["Partitions"][0], partitions[2]);
    }

    #[test]
    fn a_descriptor_is_shared_only_if_all_of_it_but_the_location_is_equal() {
        let mut other = partition("2", "s3://b/t/2", "p");
        other["StorageDescriptor"]["Parameters"] = json!({ "a": "b" });
        let mut turned = partition("3", "s3://b/t/3", "p");
        turned["StorageDescriptor"] = json!({ "InputFormat": "p", "Location": "s3://b/t/3", "Columns": [] });
        let specs = plan_specs(&root("s3://b/t"), vec![partition("1", "s3://b/t/1", "p"), other, turned]);
        let shapes: Vec<Vec<String>> = shape(&specs).into_iter().map(|(_, values)| values).collect();
        assert_eq!(shapes, [["1", "3"].map(str::to_owned).to_vec(), vec!["2".to_owned()]]);
    }

    #[test]
    fn without_a_location_nothing_is_under_the_table() {
        let specs = plan_specs(&root(""), vec![partition("1", "s3://b/t/1", "p")]);
        assert_eq!(shape(&specs), [("PartitionListComposingSpec", vec!["1".to_owned()])]);
        assert_eq!(specs[0].get("RootPath"), None);
        assert!(plan_specs(&root("s3://b/t"), Vec::new()).is_empty());
        let odd = plan_specs(
            &root("hdfs://n/t/"),
            vec![partition("1", "hdfs://n/t/1", "p"), partition("2", "hdfs://n/t2", "p")],
        );
        assert_eq!(odd.len(), 2);
        assert_eq!(shape(&odd)[0], ("PartitionSpecWithSharedSD", vec!["1".to_owned()]));
    }

    #[test]
    fn a_root_path_is_at_most_255_characters_and_ends_with_a_segment() {
        let at = |length: usize| format!("s3://b/{}", "ä".repeat(length - 7));
        for (location, expected) in [
            (at(255), Some(at(255))),
            (at(256), Some("s3://b".to_owned())),
            (format!("{}/rest", at(255)), Some(at(255))),
            (format!("{}/rest", at(254)), Some(at(254))),
            (format!("{}/{}", at(100), "x".repeat(200)), Some(at(100))),
            (format!("s3://{}", "b".repeat(300)), None),
            ("x".repeat(300), None),
            (String::new(), None),
        ] {
            assert_eq!(root_path(&location), expected.as_deref(), "{location}");
        }
        let long = format!("{}/{}", at(100), "x".repeat(200));
        let specs = plan_specs(&root(&long), vec![partition("1", &format!("{long}/1"), "p")]);
        assert_eq!(specs[0]["RootPath"], json!(at(100)));
        // Under the table's location, not under the part of it that fits.
        let beside = plan_specs(&root(&long), vec![partition("1", &format!("{}/y", at(100)), "p")]);
        assert_eq!(shape(&beside)[0].0, "PartitionListComposingSpec");
    }
}
