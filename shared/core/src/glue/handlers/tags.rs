//! Tags by ARN.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::GlueException;
use super::super::input::{Members, Read};
use super::members;
use crate::catalog::tags;
use crate::ports::App;

/// A map of tags in a request.
pub(super) fn tags_in(input: &Members, member: &str) -> BTreeMap<String, String> {
    let entries = input.object(member).into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

pub(in crate::glue) async fn get_tags(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let found = tags::get_tags(&app.ports, &app.settings.account_id, input.required("ResourceArn")?).await?;
    Ok(json!({ "Tags": found }))
}

pub(in crate::glue) async fn tag_resource(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let add = tags_in(&input, "TagsToAdd");
    tags::add_tags(&app.ports, &app.settings.account_id, input.required("ResourceArn")?, &add).await?;
    Ok(json!({}))
}

pub(in crate::glue) async fn untag_resource(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let names = input.texts("TagsToRemove");
    tags::remove_tags(&app.ports, &app.settings.account_id, input.required("ResourceArn")?, &names).await?;
    Ok(json!({}))
}
