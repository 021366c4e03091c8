//! Full names: `catalog.schema.table`. Clients put no quotes around parts, so that only the last one may have dots.

use super::UnityError;
use crate::commit::context::Context;

/// Longest name of a schema or table (the service model's limit).
const NAME_MAX_CHARS: usize = 255;

pub(super) fn check_catalog(ctx: Context<'_>, name: &str) -> Result<(), UnityError> {
    let own = &ctx.app.settings.unity.catalog;
    if name == own {
        return Ok(());
    }
    Err(UnityError::not_found(format!("there is no catalog `{name}`; the one that there is has the name `{own}`")))
}

/// The schema of a full name.
pub(super) fn schema<'a>(ctx: Context<'_>, full_name: &'a str) -> Result<&'a str, UnityError> {
    behind_catalog(ctx, full_name)
}

/// Schema and table of a full name.
pub(super) fn table<'a>(ctx: Context<'_>, full_name: &'a str) -> Result<(&'a str, &'a str), UnityError> {
    let rest = behind_catalog(ctx, full_name)?;
    rest.split_once('.')
        .filter(|(schema, table)| !schema.is_empty() && !table.is_empty())
        .ok_or_else(|| UnityError::invalid(format!("`{full_name}` is not of the form catalog.schema.table")))
}

/// The catalog's own name may have dots, too: it is known.
fn behind_catalog<'a>(ctx: Context<'_>, full_name: &'a str) -> Result<&'a str, UnityError> {
    let own = &ctx.app.settings.unity.catalog;
    match full_name.strip_prefix(own.as_str()).and_then(|rest| rest.strip_prefix('.')) {
        Some(rest) if !rest.is_empty() => Ok(rest),
        _ => {
            let catalog = full_name.split('.').next().unwrap_or_default();
            check_catalog(ctx, catalog)?;
            Err(UnityError::invalid(format!("`{full_name}` is no full name")))
        }
    }
}

/// Refuses a name for something new that its full name, or a folder, could not hold.
pub(super) fn check_new(what: &str, name: &str) -> Result<(), UnityError> {
    let is_odd = |c: char| c.is_control() || c == '/' || (c == '.' && what == "schema");
    if name.is_empty() || name.chars().count() > NAME_MAX_CHARS || name.chars().any(is_odd) {
        return Err(UnityError::invalid(format!("`{name}` cannot be the name of a {what}")));
    }
    Ok(())
}
