//! Item: something happened to a table's log that no writer of ours did, and that nobody may overlook. Counted, listed,
//! and logged under the member `alarm`, which the deployment's metric filter looks for.

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::context::Context;
use super::error::CommitError;
use super::head::decode_id;
use super::keys::{self, ALARM_PREFIX, Generation, ProposalId};
use super::verdict::clip;
use crate::delta::Version;
use crate::location::Location;
use crate::store::{
    Condition, DecodeError, Direction, Fields, Item, Query, ReadItems, Sort, SortRange, StoreError, StoreErrorKind,
    Table, Value, WriteError,
};

pub const SCHEMA_VERSION: i64 = 1;
/// Alarms of one page.
pub const LIST_MAX: usize = 100;
/// Tries to count one more.
const TRIES: u32 = 5;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AlarmKind {
    /// A version at or below the head holds other bytes than it had: a late put, or somebody rewrote it.
    VersionRewritten,
    /// The log ends before a version that was published.
    LogBehindHead,
    /// A version is gone that readers of the table need.
    LogGap,
    /// An item of `delta_log` is not complete, and neither its bytes nor its version exist.
    LogStoreBytesMissing,
    /// An item of `delta_log` is for a version that the log is not near to.
    LogStoreAhead,
    /// An item of `delta_log` said that a version was written, of which there was nothing: it was taken away.
    LogStoreStale,
    /// The bytes of an item of `delta_log` that is not complete are no commit.
    LogStoreBytesUnreadable,
    /// An item of `delta_log` is not as writers of the log store make them.
    LogStoreItemUnreadable,
    /// A commit that its writer believes to be in the log was overtaken; it was proposed again.
    CommitOvertaken,
    /// A catalog-managed table: other bytes stand in the log than were ratified for the version.
    PublishedOtherwise,
    /// A catalog-managed table: a version turned up in the log that was never ratified.
    NotRatified,
    /// A catalog-managed table: what was ratified is gone before it was published.
    RatifiedBytesMissing,
    /// A commit that its writer put into the log breaks a rule: it would have been refused.
    VisibleViolation,
}

impl AlarmKind {
    const ALL: [AlarmKind; 13] = [
        AlarmKind::VersionRewritten,
        AlarmKind::LogBehindHead,
        AlarmKind::LogGap,
        AlarmKind::LogStoreBytesMissing,
        AlarmKind::LogStoreAhead,
        AlarmKind::LogStoreStale,
        AlarmKind::LogStoreBytesUnreadable,
        AlarmKind::LogStoreItemUnreadable,
        AlarmKind::CommitOvertaken,
        AlarmKind::PublishedOtherwise,
        AlarmKind::NotRatified,
        AlarmKind::RatifiedBytesMissing,
        AlarmKind::VisibleViolation,
    ];

    pub fn name(self) -> &'static str {
        match self {
            AlarmKind::VersionRewritten => "VERSION_REWRITTEN",
            AlarmKind::LogBehindHead => "LOG_BEHIND_HEAD",
            AlarmKind::LogGap => "LOG_GAP",
            AlarmKind::LogStoreBytesMissing => "LOG_STORE_BYTES_MISSING",
            AlarmKind::LogStoreAhead => "LOG_STORE_AHEAD",
            AlarmKind::LogStoreStale => "LOG_STORE_STALE",
            AlarmKind::LogStoreBytesUnreadable => "LOG_STORE_BYTES_UNREADABLE",
            AlarmKind::LogStoreItemUnreadable => "LOG_STORE_ITEM_UNREADABLE",
            AlarmKind::CommitOvertaken => "COMMIT_OVERTAKEN",
            AlarmKind::PublishedOtherwise => "PUBLISHED_OTHERWISE",
            AlarmKind::NotRatified => "NOT_RATIFIED",
            AlarmKind::RatifiedBytesMissing => "RATIFIED_BYTES_MISSING",
            AlarmKind::VisibleViolation => "VISIBLE_VIOLATION",
        }
    }

    /// What somebody should do now.
    pub fn advice(self) -> &'static str {
        match self {
            AlarmKind::VersionRewritten | AlarmKind::LogBehindHead | AlarmKind::LogGap => {
                "find out who writes to the log by other means, restore the version, and check the rows of its files"
            }
            AlarmKind::LogStoreBytesMissing => {
                "make sure that its writer has given up, then delete the item from the table delta_log: until then \
                 no commit of the table can be made"
            }
            AlarmKind::LogStoreBytesUnreadable => {
                "write the commit's bytes anew at the item's tempPath, or delete the item from the table delta_log: until \
                 then no commit of the table can be made"
            }
            AlarmKind::LogStoreItemUnreadable => {
                "give the item the text members tempPath and complete (true or false), or delete it from the table \
                 delta_log; while its version is not in the log, no commit of the table can be made"
            }
            AlarmKind::LogStoreAhead => "restore the log's missing versions, or delete the items that are ahead of it",
            AlarmKind::LogStoreStale => "nothing, if the table was deleted and written anew; else the commit is lost",
            AlarmKind::PublishedOtherwise => {
                "find out who writes to the log by other means, and delete the file: the ratified bytes are published then"
            }
            AlarmKind::NotRatified => {
                "find out who writes to the log by other means, and delete the file: it is no version of the table"
            }
            AlarmKind::RatifiedBytesMissing => "restore the staged file as it was: the table cannot be read without it",
            AlarmKind::VisibleViolation => {
                "look at what the version holds, repair the table by a further commit, and have its writer propose its commits"
            }
            AlarmKind::CommitOvertaken => "ask for the verdict on the proposal that was made of it",
        }
    }
}

/// One happening, however often it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    pub kind: AlarmKind,
    pub version: Version,
    /// Tells happenings of one kind at one version apart, such as an ETag.
    pub mark: String,
    pub text: String,
    /// The proposal that it is about, or that was made of it.
    pub proposal: Option<ProposalId>,
    pub seen: i64,
    pub first_ms: i64,
    pub last_ms: i64,
}

impl Alarm {
    pub fn new(kind: AlarmKind, version: Version, mark: &str, text: &str, now_ms: i64) -> Alarm {
        let (text, mark) = (clip(text), mark.to_owned());
        Alarm { kind, version, mark, text, proposal: None, seen: 1, first_ms: now_ms, last_ms: now_ms }
    }

    pub fn about(mut self, proposal: ProposalId) -> Alarm {
        self.proposal = Some(proposal);
        self
    }

    pub fn encode(&self) -> Item {
        let mut item = Item::from([
            ("schema_version".into(), Value::Int(SCHEMA_VERSION)),
            ("kind".into(), self.kind.name().into()),
            ("version".into(), Value::Int(self.version.0)),
            ("mark".into(), self.mark.as_str().into()),
            ("text".into(), self.text.as_str().into()),
            ("seen".into(), Value::Int(self.seen)),
            ("first_ms".into(), Value::Int(self.first_ms)),
            ("last_ms".into(), Value::Int(self.last_ms)),
        ]);
        if let Some(proposal) = self.proposal {
            item.insert("proposal".into(), proposal.to_string().into());
        }
        item
    }

    pub fn decode(item: &Item) -> Result<Alarm, DecodeError> {
        item.check_layout(SCHEMA_VERSION)?;
        let name = item.text("kind")?;
        let kind = AlarmKind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| DecodeError::Invalid { field: "kind".into(), message: format!("unknown alarm {name}") })?;
        Ok(Alarm {
            kind,
            version: Version(item.int("version")?),
            mark: item.text("mark")?.to_owned(),
            text: item.text("text")?.to_owned(),
            proposal: item.opt_text("proposal")?.map(|_| decode_id(item, "proposal")).transpose()?,
            seen: item.int("seen")?,
            first_ms: item.int("first_ms")?,
            last_ms: item.int("last_ms")?,
        })
    }

    pub fn to_json(&self) -> Json {
        json!({
            "kind": self.kind,
            "version": self.version.0,
            "message": self.text,
            "advice": self.kind.advice(),
            "proposal_id": self.proposal.map(|id| id.to_string()),
            "seen": self.seen,
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
        })
    }
}

/// Keeps an alarm, or counts the one that is there already. Logged as an error as long as somebody has to do something.
pub async fn raise(ctx: Context<'_>, root: &Location, generation: Generation, alarm: Alarm) -> Result<(), CommitError> {
    let key = keys::alarm(root, generation, alarm.version, alarm.kind.name(), &alarm.mark);
    let items = &ctx.ports().items;
    let (mut next, mut condition) = (alarm.clone(), Condition::Absent);
    for attempt in 0..TRIES {
        match items.put(&key, next.encode(), condition).await {
            Ok(()) => {
                log(root, &alarm, next.seen);
                return Ok(());
            }
            Err(WriteError::ConditionFailed { old: Some(old) }) => {
                let old = Alarm::decode(&old)?;
                condition = Condition::equals("seen", old.seen);
                next = Alarm { seen: old.seen.saturating_add(1), last_ms: alarm.last_ms, ..old };
            }
            Err(WriteError::ConditionFailed { old: None }) => condition = Condition::Absent,
            Err(WriteError::Store(error)) => return Err(error.into()),
        }
        ctx.back_off(attempt).await;
    }
    Err(StoreError::new(StoreErrorKind::Conflict, "put commits", "an alarm was counted by many at once").into())
}

fn log(root: &Location, alarm: &Alarm, seen: i64) {
    let proposal = alarm.proposal.map(|id| id.to_string());
    // What was overtaken is proposed again once, however often it is come upon.
    if seen == 1 || alarm.kind != AlarmKind::CommitOvertaken {
        tracing::error!(alarm = alarm.kind.name(), root = %root, version = alarm.version.0, message = alarm.text,
            proposal, "a table's log needs somebody's attention");
    } else {
        tracing::info!(kind = alarm.kind.name(), root = %root, version = alarm.version.0, seen, proposal,
            "an alarm was seen again");
    }
}

/// A page of a table's alarms, latest version first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlarmPage {
    pub alarms: Vec<Alarm>,
    /// Continue with this; absent at the end.
    pub next: Option<String>,
}

/// Whether a text has the form of [`AlarmPage::next`].
pub fn is_next(text: &str) -> bool {
    let mut parts = text.split('#');
    let version = parts.next().is_some_and(|digits| digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit()));
    version && parts.count() == 2
}

/// A table's alarms of the current generation. `after` is the `next` of the page before. Strongly consistent.
pub async fn of_table(
    items: &dyn ReadItems,
    root: &Location,
    limit: usize,
    after: Option<&str>,
) -> Result<AlarmPage, CommitError> {
    let generation = super::head::load(items, root).await?.map_or(Generation::default(), |head| head.generation);
    let prefix = SortRange::Prefix(ALARM_PREFIX.into());
    let mut query = Query::new(Table::Commits, keys::table_pk(root, generation), prefix);
    query.direction = Direction::Descending;
    query.limit = Some(limit.clamp(1, LIST_MAX));
    query.start_after = after.map(|after| Sort::Text(format!("{ALARM_PREFIX}{after}")));
    let page = items.query(&query).await?;
    let alarms = page.items.iter().map(|(_, item)| Alarm::decode(item)).collect::<Result<_, _>>()?;
    let next = page.next.and_then(|sort| match sort {
        Sort::Text(text) => text.strip_prefix(ALARM_PREFIX).map(str::to_owned),
        Sort::Bytes(_) => None,
    });
    Ok(AlarmPage { alarms, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_comes_back_as_it_was() {
        for kind in AlarmKind::ALL {
            let alarm = Alarm::new(kind, Version(3), "etag", "text", 5);
            assert_eq!(Alarm::decode(&alarm.encode()).unwrap(), alarm);
            assert_eq!(alarm.to_json()["kind"], kind.name());
            let alarm = alarm.about(ProposalId(uuid::Uuid::from_u128(1)));
            assert_eq!(Alarm::decode(&alarm.encode()).unwrap(), alarm);
        }
    }
}
