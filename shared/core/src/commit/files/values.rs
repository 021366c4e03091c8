//! What must hold of every row of a file (NOT NULL, constraints, the partition's values): proved or refuted by statistics, else by the table's policy.

use super::partition::{Unsaid, describe};
use super::scan::{Broken, NotNull, RowRule, Undecided, rows_of_group};
use super::{FileError, FileJudge};
use crate::commit::constraints::{Policy, Range, Rule, RuleKind, partition_datum, truth};
use crate::commit::sql::Expr;
use crate::commit::verdict::{Exception, Refusal, clip};
use crate::delta::AddFile;
use crate::delta::footer::{Datum, FileField, Footer, Kind, Node, Presence, UnprovedNotNull, facts_of_group, find};
use crate::delta::schema::{DataType, Field};
use crate::store::ObjectKey;

/// Where the values of a column come from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    /// The same in every row: a partition column, or one that the file lacks.
    Constant(Option<Datum>),
    Leaf {
        leaf: usize,
        kind: Kind,
    },
}

/// Checks NOT NULL where null counts did not tell, partition columns where statistics did not, and every rule of the table. Answers what was accepted unverified.
pub(super) async fn check_values(
    judge: &FileJudge<'_>,
    add: &AddFile,
    key: &ObjectKey,
    footer: &Footer,
    fields: &[FileField],
    (unproved, unsaid): (&[UnprovedNotNull], &[Unsaid]),
) -> Result<Vec<String>, FileError> {
    let mut open: Vec<Open<'_>> = Vec::new();
    for one in unproved {
        open.push(Open::of_not_null(one, judge, footer, fields));
    }
    for one in unsaid {
        open.push(Open { what: What::Partition(one), question: Ok(Question::Partition(one)) });
    }
    for rule in &judge.rules {
        match bind(rule, judge, add, fields) {
            Err(text) => open.push(Open { what: What::Rule(rule), question: Err(text) }),
            Ok((expr, sources)) => {
                let row_rule = RowRule { expr, sources, groups: Vec::new() };
                if let Some(row_rule) = decide(rule, row_rule, add, footer)? {
                    open.push(Open { what: What::Rule(rule), question: Ok(Question::Rule(row_rule)) });
                }
            }
        }
    }
    let mut accepted = Vec::new();
    for one in open {
        match judge.policy {
            Policy::Accept => accepted.push(format!("{}: not proved, accepted unverified", one.what.describe())),
            Policy::Refuse => {
                let text = one.question.err().unwrap_or_else(|| "its footer does not prove it".to_owned());
                return Err(unproven(&add.path, one.what, &text).into());
            }
            Policy::Evaluate => evaluate(judge, add, key, footer, one).await?,
        }
    }
    Ok(accepted)
}

/// What statistics leave open of a file.
struct Open<'a> {
    what: What<'a>,
    /// Or why reading would not help.
    question: Result<Question<'a>, String>,
}

#[derive(Clone, Copy)]
enum What<'a> {
    NotNull(&'a UnprovedNotNull),
    Partition(&'a Unsaid),
    Rule(&'a Rule),
}

enum Question<'a> {
    NotNull(NotNull),
    Partition(&'a Unsaid),
    Rule(RowRule),
}

impl What<'_> {
    fn describe(&self) -> String {
        match self {
            What::NotNull(one) => format!("column {} NOT NULL", one.steps.join(".")),
            What::Partition(one) => format!("column {} = {}, the value of the partition", one.column, one.said()),
            What::Rule(rule) => rule.describe(),
        }
    }

    fn column(&self) -> String {
        match self {
            What::NotNull(one) => one.steps.join("."),
            What::Partition(one) => one.column.clone(),
            What::Rule(rule) => column_of(rule),
        }
    }
}

fn column_of(rule: &Rule) -> String {
    match rule.kind {
        RuleKind::Check => rule.columns().first().map_or_else(|| rule.name.clone(), |column| column.join(".")),
        RuleKind::Invariant | RuleKind::Generated => rule.name.clone(),
    }
}

impl<'a> Open<'a> {
    fn of_not_null(one: &'a UnprovedNotNull, judge: &FileJudge<'_>, footer: &Footer, fields: &[FileField]) -> Open<'a> {
        let (mut expected, mut found) = (judge.admission.schema.fields.as_slice(), fields);
        let mut parents = 0;
        let mut question = Err("its footer does not prove it".to_owned());
        for (index, name) in one.steps.iter().enumerate() {
            let field = expected.iter().find(|field| field.name == *name);
            let Some((field, file)) = field.and_then(|field| Some((field, find(found, field, judge.mode)?))) else {
                break;
            };
            let level = parents + i16::from(file.presence != Presence::Required);
            if index + 1 == one.steps.len() {
                // Any leaf below tells whether the field itself is there; a flat one is read fastest.
                if let Some(leaf) = file.leaves().first().copied() {
                    let groups = footer.metadata.row_groups().iter().enumerate();
                    let groups = groups.filter(|(_, group)| group.num_rows() > 0).map(|(index, _)| index).collect();
                    question = Ok(Question::NotNull(NotNull { leaf, parents, level, groups }));
                }
                break;
            }
            parents = level;
            match (&field.data_type, &file.node) {
                (DataType::Struct(inner), Node::Struct(group)) => (expected, found) = (inner, group),
                _ => break,
            }
        }
        Open { what: What::NotNull(one), question }
    }
}

/// The rule on the columns of this file.
fn bind(
    rule: &Rule,
    judge: &FileJudge<'_>,
    add: &AddFile,
    fields: &[FileField],
) -> Result<(Expr, Vec<Source>), String> {
    let expr = rule.expr.as_ref().map_err(|text| format!("it is not understood: {text}"))?;
    let mut sources: Vec<Source> = Vec::new();
    let bound = expr.bind(&mut |path| {
        let source = source_of(path, judge, add, fields)?;
        let slot = sources.iter().position(|known| *known == source).unwrap_or_else(|| {
            sources.push(source);
            sources.len() - 1
        });
        Ok(Expr::Slot(slot))
    })?;
    Ok((bound, sources))
}

fn source_of(path: &[String], judge: &FileJudge<'_>, add: &AddFile, fields: &[FileField]) -> Result<Source, String> {
    let unknown = || format!("the table has no column `{}`", path.join("."));
    let (mut expected, mut found) = (judge.admission.schema.fields.as_slice(), Some(fields));
    for (index, name) in path.iter().enumerate() {
        let field = expected.iter().find(|field| same_name(&field.name, name)).ok_or_else(unknown)?;
        if index == 0
            && let Some(value) = partition_value(field, judge, add)
        {
            return value
                .map(Source::Constant)
                .ok_or_else(|| format!("the partition value of `{name}` is not compared"));
        }
        let file = found.and_then(|found| find(found, field, judge.mode));
        if index + 1 == path.len() {
            return match (&field.data_type, file.map(|file| &file.node)) {
                (DataType::Primitive(_) | DataType::Void, None | Some(Node::Leaf { kind: Kind::Null, .. })) => {
                    Ok(Source::Constant(None))
                }
                (_, Some(Node::Leaf { leaf, kind })) => Ok(Source::Leaf { leaf: *leaf, kind: kind.clone() }),
                _ => Err(format!("the column `{}` has a nested type", path.join("."))),
            };
        }
        let DataType::Struct(inner) = &field.data_type else { return Err(unknown()) };
        expected = inner;
        found = match file.map(|file| &file.node) {
            Some(Node::Struct(group)) => Some(group),
            _ => None,
        };
    }
    Err(unknown())
}

fn same_name(a: &str, b: &str) -> bool {
    a == b || a.to_lowercase() == b.to_lowercase()
}

/// The value of a partition column; inner none: it is not one that can be compared.
fn partition_value(field: &Field, judge: &FileJudge<'_>, add: &AddFile) -> Option<Option<Option<Datum>>> {
    let text = add.partition_values.get(field.physical_name(judge.mode))?;
    match &field.data_type {
        DataType::Primitive(kind) => Some(partition_datum(text.as_deref(), kind)),
        _ => Some(None),
    }
}

/// Row groups that statistics leave open; none if they prove all.
fn decide(rule: &Rule, mut row_rule: RowRule, add: &AddFile, footer: &Footer) -> Result<Option<RowRule>, Refusal> {
    for (index, group) in footer.metadata.row_groups().iter().enumerate() {
        if group.num_rows() <= 0 {
            continue;
        }
        let ranges: Vec<Range> = row_rule
            .sources
            .iter()
            .map(|source| match source {
                Source::Constant(None) => Range::null(),
                Source::Constant(Some(value)) => Range::point(value.clone()),
                Source::Leaf { leaf, kind } => Range::of_facts(&facts_of_group(group, *leaf, kind)),
            })
            .collect();
        let found = truth(&row_rule.expr, &ranges);
        if found.has_witness {
            let facts = row_rule.sources.iter().map(|source| match source {
                Source::Constant(None) => "null".to_owned(),
                Source::Constant(Some(value)) => value.to_string(),
                Source::Leaf { leaf, kind } => describe(&facts_of_group(group, *leaf, kind)),
            });
            let facts: Vec<String> = facts.collect();
            let text = format!("row group {index}: {}", facts.join("; "));
            return Err(violated(&add.path, rule, &Broken { text, rows: rows_of_group(footer, index) }));
        }
        if !found.always {
            row_rule.groups.push(index);
        }
    }
    Ok((!row_rule.groups.is_empty()).then_some(row_rule))
}

async fn evaluate(
    judge: &FileJudge<'_>,
    add: &AddFile,
    key: &ObjectKey,
    footer: &Footer,
    open: Open<'_>,
) -> Result<(), FileError> {
    let question = match open.question {
        Ok(question) => question,
        Err(text) => return Err(unproven(&add.path, open.what, &text).into()),
    };
    let found = match &question {
        Question::NotNull(not_null) => judge.scan_not_null(key, footer, not_null).await,
        Question::Partition(one) => judge.scan_partition(key, footer, one).await,
        Question::Rule(rule) => judge.scan_rule(key, footer, rule).await,
    };
    match (found, open.what) {
        (Ok(None), _) => Ok(()),
        (Ok(Some(found)), What::Rule(rule)) => Err(violated(&add.path, rule, &found).into()),
        (Ok(Some(found)), What::Partition(one)) => {
            let mut refusal = one.refusal(&add.path, &found.text);
            refusal.place.rows = found.rows;
            Err(refusal.into())
        }
        (Ok(Some(found)), What::NotNull(one)) => {
            let column = one.steps.join(".");
            let text = format!("column `{column}` must not be null and has a null ({})", found.text);
            let mut refusal = Refusal::new(
                Exception::SchemaMismatchException,
                "SCHEMA",
                text,
                "remove the nulls and write the file anew",
            )
            .class("DELTA_NOT_NULL_CONSTRAINT_VIOLATED")
            .file(&add.path)
            .column(&column);
            refusal.place.expected = Some(clip(&one.expected));
            refusal.place.found = Some(clip(&found.text));
            refusal.place.rows = found.rows;
            Err(refusal.into())
        }
        (Err(Undecided::Failed(error)), _) => Err(error),
        (Err(Undecided::Because(text) | Undecided::TooMuch(text)), what) => {
            Err(unproven(&add.path, what, &text).into())
        }
    }
}

fn violated(path: &str, rule: &Rule, found: &Broken) -> Refusal {
    let advice = match rule.kind {
        RuleKind::Generated => "write the column with the values of its expression",
        _ => "remove the rows that break the constraint and write the file anew",
    };
    let text = format!("rows of the file break the {}", rule.describe());
    let mut refusal = Refusal::new(Exception::SchemaMismatchException, "CONSTRAINT", text, advice)
        .class("DELTA_VIOLATE_CONSTRAINT_WITH_VALUES")
        .file(path)
        .column(&column_of(rule));
    refusal.place.expected = Some(clip(&rule.text));
    refusal.place.found = Some(clip(&found.text));
    refusal.place.rows = found.rows;
    refusal
}

/// Not known to be broken, and not known to be kept.
fn unproven(path: &str, what: What<'_>, why: &str) -> Refusal {
    let text = format!("the {} is not proved for the rows of the file: {why}", what.describe());
    let advice = "write statistics (null counts, minima, maxima), or set the table property lakewarden.unprovenConstraints to accept";
    let class = match what {
        What::NotNull(_) => "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
        What::Rule(_) | What::Partition(_) => "LAKEWARDEN_UNPROVEN_CONSTRAINT",
    };
    Refusal::new(Exception::SchemaMismatchException, "UNPROVEN_CONSTRAINT", text, advice)
        .class(class)
        .file(path)
        .column(&what.column())
}
