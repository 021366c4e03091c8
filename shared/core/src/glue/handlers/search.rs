//! SearchTables.

use serde_json::{Value, json};

use super::super::GlueException;
use super::super::input::Read;
use super::super::render::{self, Sized};
use super::{add_token, members, page_size, position};
use crate::catalog::Scope;
use crate::catalog::search::{Match, Position, Search, search_tables};
use crate::ports::App;

const PAGE_MAX: usize = 1000;
const PAGE_DEFAULT: usize = 100;

pub(in crate::glue) async fn search(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    if matches!(input.text("ResourceShareType"), Some("FOREIGN" | "FEDERATED")) {
        // Tables of other accounts and catalogs: there are none.
        return Ok(json!({ "TableList": [] }));
    }
    let (filters, sort) = (input.list("Filters"), input.list("SortCriteria"));
    let search = Search::parse(filters, input.text("SearchText"), sort)?;
    let (filters, sort) = (json!(filters).to_string(), json!(sort).to_string());
    let scope = Scope(&["SearchTables", &filters, input.text("SearchText").unwrap_or_default(), &sort]);
    let after = position(app, &input, &scope).await?.map(|bytes| Position::decode(&bytes)).transpose()?;
    let limit = page_size(&input, PAGE_DEFAULT).min(PAGE_MAX);
    let mut shown = Sized::default();
    let mut take = |found: &Match| shown.push(render::table(&found.table, &found.definition, &app.settings.account_id));
    let next = search_tables(&app.ports, &search, after, limit, &mut take).await?;
    let mut output = members(json!({ "TableList": shown.into_entries() }));
    let next = next.map(|position| position.encode());
    add_token(app, &mut output, &scope, next.as_deref()).await?;
    Ok(Value::Object(output))
}
