//! What a metaData action may change of an existing table, by the way the commit means it.

use super::diff::{ChangeKind, SchemaChange, diff, primitives};
use super::mode::{Mode, replaces_part};
use super::widening::{Widening, widening};
use super::{mapping, properties, refuse, widening as history};
use crate::commit::candidate::Candidate;
use crate::commit::constraints::{self, Rule, RuleKind};
use crate::commit::facts::FileFacts;
use crate::commit::identity;
use crate::commit::verdict::{Refusal, clip};
use crate::delta::schema::{MappingMode, Schema};
use crate::delta::{Metadata, Protocol, features};

/// Differences named beside the first that is refused.
const EXPLAINED_MAX: usize = 50;

/// A table before and after a commit.
#[derive(Clone, Copy, Debug)]
pub struct TableChange<'a> {
    pub old: (&'a Metadata, &'a Schema),
    pub new: (&'a Metadata, &'a Schema),
    /// In force after the commit.
    pub protocol: &'a Protocol,
    pub mode: Mode,
}

/// What an admitted change is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evolution {
    /// One text for each difference, and for what was not checked.
    pub explained: Vec<String>,
    /// Allowed only because the commit replaces the whole table: it must remove every live file.
    pub needs_full_overwrite: bool,
}

impl Evolution {
    /// Where the whole table must be replaced: that nothing of it stays. The removes are known to name live files.
    pub fn check_overwrite(&self, candidate: &Candidate, files: &FileFacts) -> Result<(), Refusal> {
        if !self.needs_full_overwrite {
            return Ok(());
        }
        // What comes back under a deletion vector stays, too.
        let removed = candidate.remove_keys.iter().filter(|key| !candidate.added.contains(*key)).count();
        let change = "the new schema, or what it demands of rows, needs";
        let text = match files.live_count() {
            Some(live) if removed >= live => return Ok(()),
            Some(live) => {
                let left = live - removed;
                format!("{change} the whole table to be replaced, but {left} of its {live} files stay")
            }
            None => format!("{change} the whole table to be replaced, and the table has too many files to tell"),
        };
        let mut refusal = refuse("OVERWRITE_REQUIRED", text, "remove every file of the table in the same commit")
            .class(OVERWRITE_REQUIRED);
        refusal.more = self.explained.clone();
        Err(refusal)
    }
}

/// Checks what a commit changes of an existing table's metadata.
pub fn check_metadata_change(change: TableChange<'_>, candidate: Option<&Candidate>) -> Result<Evolution, Refusal> {
    let (old, old_schema) = change.old;
    let (new, new_schema) = change.new;
    if old.id != new.id {
        let text = format!("metaData.id changes from {} to {}", old.id, new.id);
        let mut refusal = Refusal::invalid("METADATA_ID", text);
        refusal.advice = "write the table's own metaData.id (deltalake's merge with merge_schema makes up a new one: \
                          add the columns by a commit of their own first, and merge then)"
            .to_owned();
        (refusal.place.expected, refusal.place.found) = (Some(clip(&old.id)), Some(clip(&new.id)));
        return Err(refusal);
    }
    let differences = diff(old_schema, new_schema);
    let mut explained: Vec<String> = differences.iter().map(SchemaChange::explain).collect();
    let partitioning = check_partitioning(change);
    let rules = Rules {
        mode: change.mode,
        is_mapped: MappingMode::of(old).unwrap_or_default() != MappingMode::None,
        is_widening_on: features::has_type_widening_on(change.protocol, new),
        guarded: constraints::guarded_columns(old, old_schema),
    };
    let wrong: Vec<(&SchemaChange, Wrong)> =
        differences.iter().filter_map(|one| rules.wrong(one, &differences).map(|wrong| (one, wrong))).collect();
    // Whoever writes the whole table anew may change all of it; whoever need not is held to the stricter rules.
    let new_rules = new_rules((old, old_schema), (new, new_schema));
    let changes_rules = properties::changes_constraints(old, new)
        || !new_rules.is_empty()
        || identity::check_schema(Some(old_schema), new_schema, false).is_err();
    let is_replaced = change.mode == Mode::Replace && (partitioning.is_err() || !wrong.is_empty() || changes_rules);
    if !is_replaced {
        partitioning?;
        if let Some(((first, wrong), _)) = wrong.split_first() {
            return Err(refusal(first, wrong, &differences, candidate));
        }
    }
    explained.extend(properties::check_properties(old, new, change.mode)?);
    mapping::check_change(change.old, change.new)?;
    if !is_replaced {
        explained.extend(
            new_rules.iter().map(|rule| {
                format!("the {rule} is new: rows that are in the table already were not checked against it")
            }),
        );
        for (path, before, after) in mapping::kept_fields(old_schema, new_schema) {
            history::check_history(&path, before, after, rules.is_widening_on)?;
        }
    }
    if old_schema != new_schema {
        history::check_lossless(new_schema)?;
    }
    explained.truncate(EXPLAINED_MAX);
    Ok(Evolution { explained, needs_full_overwrite: is_replaced })
}

/// Invariants and generated columns, in words, that the table did not have. A renamed column takes its own along.
fn new_rules((old, old_schema): (&Metadata, &Schema), (new, new_schema): (&Metadata, &Schema)) -> Vec<String> {
    let (before, after) = (constraints::rules_of(old, old_schema), constraints::rules_of(new, new_schema));
    let is_same = |a: &Rule, b: &Rule| a.kind == b.kind && a.name == b.name && a.text == b.text;
    let is_renamed = |a: &Rule, b: &Rule| a.kind == b.kind && a.text == b.text && !after.iter().any(|c| is_same(b, c));
    let fresh = after.iter().filter(|rule| rule.kind != RuleKind::Check);
    let fresh = fresh.filter(|rule| !before.iter().any(|known| is_same(rule, known) || is_renamed(rule, known)));
    fresh.map(Rule::describe).collect()
}

/// The same partition columns in the same order; a rename takes them along.
fn check_partitioning(change: TableChange<'_>) -> Result<(), Refusal> {
    let ((old, old_schema), (new, new_schema)) = (change.old, change.new);
    let renamed = old.partition_columns.iter().map(|column| {
        let after = old_schema.column(column).and_then(|before| super::diff::successor(before, &new_schema.fields));
        after.map_or(column.as_str(), |after| &after.name)
    });
    if renamed.eq(new.partition_columns.iter().map(String::as_str)) {
        return Ok(());
    }
    let text =
        format!("partition columns change from {} to {}", list(&old.partition_columns), list(&new.partition_columns));
    let class = match change.mode {
        Mode::Alter { .. } => "DELTA_UNSUPPORTED_PARTITION_COLUMN_CHANGE",
        Mode::Merge | Mode::Replace => "DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH",
    };
    let mut refusal = refuse(
        "PARTITIONING",
        text,
        "keep the table's partition columns, or overwrite the whole table with the new ones",
    )
    .class(class);
    refusal.place.expected = Some(clip(&list(&old.partition_columns)));
    refusal.place.found = Some(clip(&list(&new.partition_columns)));
    Err(refusal)
}

fn list(columns: &[String]) -> String {
    if columns.is_empty() { "none".to_owned() } else { columns.join(", ") }
}

/// Why a difference is refused.
struct Wrong {
    reason: &'static str,
    class: &'static str,
    advice: &'static str,
}

struct Rules {
    mode: Mode,
    is_mapped: bool,
    is_widening_on: bool,
    /// Columns that constraints and generated columns are made of, and what depends on them.
    guarded: Vec<(Vec<String>, String)>,
}

const OVERWRITE_REQUIRED: &str = "DELTA_METADATA_MISMATCH.OVERWRITE_REQUIRED";

impl Rules {
    fn wrong(&self, change: &SchemaChange, all: &[SchemaChange]) -> Option<Wrong> {
        let wrong = |reason, class, advice| Some(Wrong { reason, class, advice });
        let is_alter = matches!(self.mode, Mode::Alter { .. });
        let is_positioned = matches!(self.mode, Mode::Alter { is_positioned: true });
        if let Some(found) = self.guard(change) {
            return Some(found);
        }
        match &change.kind {
            ChangeKind::Added { nullable: false, .. } => {
                wrong("NULLABILITY", OVERWRITE_REQUIRED, "let the new column be null: files that exist lack it")
            }
            ChangeKind::Added { is_last: false, .. } | ChangeKind::Moved if !is_positioned => {
                wrong("COLUMN_ORDER", OVERWRITE_REQUIRED, "add new columns as the last of their struct, and move none")
            }
            ChangeKind::Added { .. } | ChangeKind::Moved | ChangeKind::Relaxed => None,
            ChangeKind::Dropped { .. } if is_alter && self.is_mapped => {
                let above = parent(&change.path);
                let is_ambiguous =
                    all.iter().any(|one| matches!(one.kind, ChangeKind::Added { .. }) && parent(&one.path) == above);
                if is_ambiguous {
                    let advice = "drop columns and add columns by two commits: as one it could be a rename";
                    return wrong("AMBIGUOUS_CHANGE", OVERWRITE_REQUIRED, advice);
                }
                None
            }
            ChangeKind::Renamed { .. } if is_alter && self.is_mapped => None,
            ChangeKind::Dropped { .. } | ChangeKind::Renamed { .. } => wrong(
                "COLUMN_DROPPED",
                OVERWRITE_REQUIRED,
                "keep every column under its name; dropping and renaming needs column mapping and a statement of its own",
            ),
            ChangeKind::Tightened => {
                wrong("NULLABILITY", OVERWRITE_REQUIRED, "nullability may only be relaxed: rows that exist may be null")
            }
            ChangeKind::Retyped { .. } => self.wrong_type(change),
            ChangeKind::Reshaped { .. } => wrong(
                "COLUMN_TYPE",
                "DELTA_MERGE_INCOMPATIBLE_DATATYPE",
                "keep the type, or overwrite the whole table with the new schema",
            ),
            ChangeKind::Metadata { members } => members.iter().find_map(|member| self.wrong_member(member)),
        }
    }

    /// Changes below columns that constraints depend on.
    fn guard(&self, change: &SchemaChange) -> Option<Wrong> {
        let is_harmful = matches!(
            change.kind,
            ChangeKind::Dropped { .. }
                | ChangeKind::Renamed { .. }
                | ChangeKind::Retyped { .. }
                | ChangeKind::Reshaped { .. }
        );
        let path = change.old_path.as_deref().filter(|_| is_harmful)?.to_lowercase();
        let touches = |column: &[String]| {
            let column = column.join(".").to_lowercase();
            column == path || column.starts_with(&format!("{path}.")) || path.starts_with(&format!("{column}."))
        };
        self.guarded.iter().find(|(column, _)| touches(column)).map(|(_, guard)| Wrong {
            reason: "CONSTRAINT_DEPENDENT_COLUMN",
            class: if guard.starts_with("generated") {
                "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE"
            } else {
                "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"
            },
            advice: "drop the constraints and generated columns that are made of the column first",
        })
    }

    fn wrong_type(&self, change: &SchemaChange) -> Option<Wrong> {
        let Some((from, to)) = primitives(&change.kind) else {
            // From void, to anything.
            return None;
        };
        let is_alter = matches!(self.mode, Mode::Alter { .. });
        let is_allowed = match widening(from, to) {
            Some(Widening::SameStorage) => true,
            Some(Widening::SameFamily) => self.is_widening_on,
            Some(Widening::Explicit) => self.is_widening_on && is_alter,
            None => false,
        };
        if is_allowed {
            return None;
        }
        let both_decimal = [from, to].iter().all(|kind| kind.to_string().starts_with("decimal"));
        Some(Wrong {
            reason: "COLUMN_TYPE",
            class: if both_decimal {
                "DELTA_MERGE_INCOMPATIBLE_DECIMAL_TYPE"
            } else {
                "DELTA_MERGE_INCOMPATIBLE_DATATYPE"
            },
            advice: match widening(from, to) {
                Some(Widening::SameFamily) => "turn on delta.enableTypeWidening first, or keep the type",
                Some(_) => "turn on delta.enableTypeWidening and change the type by a statement of its own, or keep it",
                None => "keep the type, or overwrite the whole table with the new schema",
            },
        })
    }

    /// Comments and what writers note for themselves are free.
    fn wrong_member(&self, member: &str) -> Option<Wrong> {
        let is_alter = matches!(self.mode, Mode::Alter { .. });
        let is_free = match member {
            "delta.identity.highWaterMark" => true,
            "delta.invariants" | "delta.generationExpression" => is_alter,
            other => !other.starts_with("delta."),
        };
        (!is_free).then_some(Wrong {
            reason: "COLUMN_METADATA",
            class: OVERWRITE_REQUIRED,
            advice: "keep what the field's metadata says for Delta",
        })
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(above, _)| above)
}

fn refusal(first: &SchemaChange, wrong: &Wrong, all: &[SchemaChange], candidate: Option<&Candidate>) -> Refusal {
    let part = match candidate {
        Some(candidate) if replaces_part(candidate) => "; a commit that replaces a part of the table cannot do that",
        _ => "",
    };
    let mut refusal =
        refuse(wrong.reason, format!("{}{part}", first.explain()), wrong.advice).class(wrong.class).column(&first.path);
    let (expected, found) = first.sides();
    (refusal.place.expected, refusal.place.found) = (expected.as_deref().map(clip), found.as_deref().map(clip));
    let others = all.iter().filter(|one| !std::ptr::eq(*one, first));
    refusal.more = others.take(EXPLAINED_MAX).map(|one| clip(&one.explain())).collect();
    refusal
}
