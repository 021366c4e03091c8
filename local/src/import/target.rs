//! The Lakewarden that is copied into, by its REST interface.

use serde_json::Value;

use crate::register::Catalog;
use crate::signed::{AwsAccess, CallError};

/// What making something came to.
pub(super) enum Made {
    New,
    /// It is there, and looks like this (unless it has gone since).
    There(Option<Value>),
}

pub(super) struct Target {
    catalog: Catalog,
}

impl Target {
    pub(super) fn open(gateway: &str, access: &AwsAccess) -> Result<Self, CallError> {
        Ok(Self { catalog: Catalog::open(gateway, access)? })
    }

    pub(super) fn base(&self) -> &str {
        self.catalog.base()
    }

    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// In a dry run nothing is made, and `New` means that it is not there.
    pub(super) async fn make_database(&self, input: &Value, is_dry: bool) -> Result<Made, CallError> {
        let name = super::name_of(input);
        if let Some(found) = self.catalog.database(&name).await? {
            return Ok(Made::There(Some(found)));
        }
        if is_dry {
            return Ok(Made::New);
        }
        match self.catalog.create_database(input).await {
            Ok(()) => Ok(Made::New),
            Err(error) if error.is("AlreadyExistsException") => Ok(Made::There(self.catalog.database(&name).await?)),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn make_table(&self, database: &str, input: &Value, is_dry: bool) -> Result<Made, CallError> {
        let name = super::name_of(input);
        if let Some(found) = self.catalog.table(database, &name).await? {
            return Ok(Made::There(Some(found)));
        }
        if is_dry {
            return Ok(Made::New);
        }
        match self.catalog.create_table(database, input).await {
            Ok(()) => Ok(Made::New),
            Err(error) if error.is("AlreadyExistsException") => {
                Ok(Made::There(self.catalog.table(database, &name).await?))
            }
            Err(error) => Err(error),
        }
    }
}
