//! What every command is given: the ports, the settings and the time it has.

use std::fmt;
use std::sync::Arc;

use crate::commit::warm::WarmTables;
use crate::location::Location;
use crate::predicate::Mode;
use crate::store::{Clock, Ids, Items, Objects, Queue};

/// What a command may use of the outside world. Cheap to clone.
#[derive(Clone)]
pub struct Ports {
    pub items: Arc<dyn Items>,
    pub objects: Arc<dyn Objects>,
    pub queue: Arc<dyn Queue>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
    /// Folder (in `objects`) of bodies that are too large for an item: [`Settings::bodies`].
    pub bodies: Location,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ports")
    }
}

/// Who may write at the same time to a Delta table with an identity column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdentityWriters {
    /// One after the other: whatever won since a commit read is a conflict.
    #[default]
    OneAtATime,
    /// As on other tables, and a winner that says that it only moved the marks is harmless to a commit without metaData.
    HighWaterMark,
}

/// Isolation of a table that does not say `delta.isolationLevel` itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IsolationLevel {
    #[default]
    WriteSerializable,
    Serializable,
}

/// What an update of a partition with other values does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartitionMoves {
    /// The partition moves, with its statistics.
    #[default]
    Allow,
    /// It is refused: the service's reference says that values cannot change.
    Refuse,
}

/// How runs of sweeps get to a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SweepDispatch {
    /// One message per run, and one more for each further slice of it.
    #[default]
    Queue,
    /// There is no queue: the planner works on them itself, in the time it has.
    Inline,
}

/// Settings of a deployment. `shared/aws` reads them from a function's environment, `local` from flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Twelve digits; the default CatalogId. In Lambda from the function's ARN.
    pub account_id: String,
    pub region: String,
    pub default_isolation: IsolationLevel,
    pub identity_writers: IdentityWriters,
    /// Where reports of sweeps are written; lies outside every table.
    pub reports: Location,
    /// Where definitions lie that are too large for an item of DynamoDB; lies outside every table. By default in the
    /// bucket of the reports.
    pub bodies: Location,
    /// How long changed and deleted partitions can still be read as of a moment before; 0 keeps none. Every change is kept
    /// for as long as this said when it was made: after it was raised, moments from before that are whole again only when
    /// the new time has passed.
    pub history_retention_ms: i64,
    /// How long verdicts can be read after they were given, and staged commits are kept.
    pub verdict_retention_ms: i64,
    /// How long the files of a dropped table stay whatever is asked for.
    pub dropped_grace_ms: i64,
    pub partition_moves: PartitionMoves,
    /// Partitions of one table, about: the count it is compared with is refreshed by batches.
    pub max_partitions_per_table: u64,
    /// What the Hive default marker means to filters on typed keys.
    pub default_partition: Mode,
    pub sweep_dispatch: SweepDispatch,
    pub undo: UndoSettings,
    pub unity: UnitySettings,
}

/// How long what sweeps delete can come back in buckets that keep no versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoSettings {
    /// Of tables whose optimizer does not say; 0: not at all.
    pub hours: i64,
    /// Folder in each bucket that files are moved to until then; lies outside every table.
    pub folder: String,
}

impl Default for UndoSettings {
    fn default() -> Self {
        Self { hours: 7 * 24, folder: "lakewarden-quarantine".to_owned() }
    }
}

/// How the catalog looks to Unity Catalog's clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitySettings {
    /// Name of the one catalog.
    pub catalog: String,
    /// Where managed tables lie whose schema has no location of its own; without it, such schemas take none.
    pub storage: Option<Location>,
}

impl Default for UnitySettings {
    fn default() -> Self {
        Self { catalog: "unity".to_owned(), storage: None }
    }
}

impl Settings {
    /// The folder for bodies in the bucket of these reports.
    pub fn bodies_beside(reports: &Location) -> Location {
        Location::new(reports.bucket.clone(), "bodies")
    }
}

impl Default for Settings {
    fn default() -> Self {
        let reports = Location::new("lakewarden-reports", "sweeps");
        Self {
            account_id: "000000000000".to_owned(),
            region: "us-east-1".to_owned(),
            default_isolation: IsolationLevel::default(),
            identity_writers: IdentityWriters::default(),
            bodies: Self::bodies_beside(&reports),
            reports,
            history_retention_ms: 7 * 24 * 60 * 60 * 1000,
            verdict_retention_ms: 30 * 24 * 60 * 60 * 1000,
            dropped_grace_ms: 7 * 24 * 60 * 60 * 1000,
            partition_moves: PartitionMoves::default(),
            max_partitions_per_table: 20_000_000,
            default_partition: Mode::default(),
            sweep_dispatch: SweepDispatch::default(),
            undo: UndoSettings::default(),
            unity: UnitySettings::default(),
        }
    }
}

/// Ports and settings: what a function holds between invocations.
#[derive(Clone, Debug)]
pub struct App {
    pub ports: Ports,
    pub settings: Settings,
    /// Tables that were committed to lately.
    pub warm: WarmTables,
}

impl App {
    pub fn new(ports: Ports, settings: Settings) -> App {
        App { ports, settings, warm: WarmTables::default() }
    }
}

/// Moment (milliseconds since the epoch, by the Clock port) at which the platform ends the invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub i64);

impl Deadline {
    pub fn in_ms(clock: &dyn Clock, ms: i64) -> Self {
        Self(clock.now_ms().saturating_add(ms))
    }

    /// Milliseconds left, never negative.
    pub fn left_ms(self, clock: &dyn Clock) -> i64 {
        self.0.saturating_sub(clock.now_ms()).max(0)
    }
}
