//! Predicates as engines record them, and what is understood of them.

use serde_json::{Value, json};

use crate::commit::read_set::{
    Column, DeclaredReadSet, Literal, Predicate, Reads, declared, is_blind_append, reads_of,
};
use crate::commit::sql::Comparison;
use crate::delta::{Actions, Strictness, parse_commit};

const DELTA_RS: &str = "delta-rs:py-1.6.6";
const SAIL: &str = "sail-delta-lake:0.7.2";
const SPARK: &str = "Apache-Spark/3.5.1 Delta-Lake/3.2.0";

/// A short form: `?` is unknown, `*` is always.
fn show(predicate: &Predicate) -> String {
    let all = |parts: &[Predicate], by: &str| {
        let parts: Vec<String> = parts.iter().map(show).collect();
        format!("({})", parts.join(by))
    };
    match predicate {
        Predicate::Always => "*".to_owned(),
        Predicate::Unknown => "?".to_owned(),
        Predicate::And(parts) => all(parts, " & "),
        Predicate::Or(parts) => all(parts, " | "),
        Predicate::Not(part) => format!("!{}", show(part)),
        Predicate::IsNull(column) => format!("{}=null", show_column(column)),
        Predicate::In(column, literals) => {
            let literals: Vec<String> = literals.iter().map(show_literal).collect();
            format!("{} in {}", show_column(column), literals.join(","))
        }
        Predicate::Compare(comparison, column, literal) => {
            let sign = match comparison {
                Comparison::Equal => "=",
                Comparison::NotEqual => "<>",
                Comparison::Less => "<",
                Comparison::LessOrEqual => "<=",
                Comparison::Greater => ">",
                Comparison::GreaterOrEqual => ">=",
                Comparison::NullSafeEqual => "<=>",
            };
            format!("{}{sign}{}", show_column(column), show_literal(literal))
        }
    }
}

fn show_column(column: &Column) -> String {
    let cast = column.cast.as_ref().map(|cast| format!(":{cast}")).unwrap_or_default();
    format!("{}{cast}", column.path.join("."))
}

fn show_literal(literal: &Literal) -> String {
    match literal {
        Literal::Null => "null".to_owned(),
        Literal::Flag(flag) => flag.to_string(),
        Literal::Number(text) => text.clone(),
        Literal::EitherNumber(one, other) => format!("{one}/{other}"),
        Literal::Text(text, _) => format!("'{text}'"),
        Literal::Quoted(text) => format!("\"{text}\""),
        Literal::Date(text) => format!("d{text}"),
        Literal::Timestamp(text, zone) => format!("t{text}{zone:?}"),
        Literal::Raw(text) => format!("~{text}~"),
        Literal::Unusable => "?".to_owned(),
    }
}

fn commit(lines: &[Value]) -> Actions {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    parse_commit(text.as_bytes(), Strictness::Proposal).unwrap()
}

fn rewrite() -> Vec<Value> {
    vec![
        json!({"add": {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": true}}),
        json!({"remove": {"path": "b", "dataChange": true}}),
    ]
}

/// What a rewrite of files by an operation read.
fn read_by(engine: &str, operation: &str, parameters: Value) -> String {
    let mut lines = rewrite();
    lines
        .push(json!({"commitInfo": {"engineInfo": engine, "operation": operation, "operationParameters": parameters}}));
    let actions = commit(&lines);
    match reads_of(&actions, None) {
        Reads::Nothing => "nothing".to_owned(),
        Reads::WholeTable => "whole table".to_owned(),
        Reads::Rules(rules) => format!("{rules:?}"),
        Reads::Some { predicates, files } => {
            assert!(files.is_empty());
            let shown: Vec<String> = predicates.iter().map(|one| show(&one.predicate)).collect();
            shown.join(" or ")
        }
    }
}

/// Recorded with deltalake 1.6.6.
const DELTA_RS_TEXTS: &[(&str, &str)] = &[
    ("id = 5", "id=5"),
    ("part = 'a'", "part='a'"),
    ("id != 3", "id<>3"),
    ("id = 1 OR id = 2 OR id = 3", "(id=1 | id=2 | id=3)"),
    ("id != 1 AND id != 2", "(id<>1 & id<>2)"),
    ("name IS NULL", "name=null"),
    ("name IS NOT NULL", "!name=null"),
    ("name = 'b''s'", "name='b's'"),
    ("name = ''", "name=''"),
    ("\"Mixed Case\" > 3", "Mixed Case>3"),
    ("id >= 2 AND id <= 4", "(id>=2 & id<=4)"),
    ("id < 2 OR id > 4", "(id<2 | id>4)"),
    ("name LIKE 'a%'", "?"),
    ("d >= '2024-01-03'::date", "d>=d2024-01-03"),
    ("d = '2024-01-02'::date OR d = '2024-01-03'::date", "(d=d2024-01-02 | d=d2024-01-03)"),
    (
        "ts > arrow_cast('2024-01-01T00:00:02.000000', 'Timestamp(Microsecond, Some(\"UTC\"))')",
        "ts>t2024-01-01T00:00:02.000000Utc",
    ),
    (
        "ntz < arrow_cast('2024-01-01T00:00:03.000000', 'Timestamp(Microsecond, None)')",
        "ntz<t2024-01-01T00:00:03.000000Session",
    ),
    // 2.20 and -3.30: the digits without their point.
    ("dec = '220'::decimal(12, 2)", "dec=220/220e-2"),
    ("dec = '-330'::decimal(12, 2)", "dec=-330/-330e-2"),
    ("f > 1", "f>1"),
    ("f > 1.25", "f>1.25"),
    ("f = -0", "f=-0"),
    ("f < 10000000000", "f<10000000000"),
    ("b", "b=true"),
    ("NOT b", "!b=true"),
    ("b IS TRUE", "b<=>true"),
    ("n > 2", "n>2"),
    ("n + 1 = 3", "?"),
    ("get_field(s, 'x') = 3", "s.x=3"),
    ("get_field(s, Utf8(\"x\")) IN (1, 2)", "s.x in 1,2"),
    ("bin = decode('01', 'hex')", "?"),
    ("(id = 1 OR id = 2) AND (part = 'a' OR part IS NULL)", "((id=1 | id=2) & (part='a' | part=null))"),
    ("n = 3 OR id = 4 AND (f > 1.5 OR name = 'a')", "(n=3 | (id=4 & (f>1.5 | name='a')))"),
    ("n = 3 AND part != 'a'", "(n=3 & part<>'a')"),
    ("lower(name) = 'a'", "?"),
    ("CASE WHEN id IS NOT NULL THEN id ELSE 0 END = 3", "?"),
    ("id IS NOT DISTINCT FROM 3", "!!id<=>3"),
    ("(id = 1) IS NOT DISTINCT FROM true", "?"),
    ("id = 1 OR id = NULL", "(id=1 | id=null)"),
    ("name ~ 'a.*'", "?"),
    ("id % 2 = 0", "?"),
    ("true", "*"),
    ("id NOT IN (1, 2, 3, 4, 5)", "!id in 1,2,3,4,5"),
    ("name IN ('a', 'b')", "name in 'a','b'"),
    ("id > 9007199254740993 OR id = 1", "(id>9007199254740993 | id=1)"),
    ("name = 'x\\y'", "name='x\\y'"),
];

/// Recorded with pysail 0.7.2; it prints tokens with blanks between them, and loses the quotes of names.
const SAIL_TEXTS: &[(&str, &str)] = &[
    ("id = 5 ", "id=5"),
    ("part = 'a' ", "part='a'"),
    ("id IN ( 5 , 6 ) ", "id in 5,6"),
    ("id NOT IN ( 5 , 6 ) ", "!id in 5,6"),
    ("id BETWEEN 2 AND 4 ", "(id>=2 & id<=4)"),
    ("name IS NOT NULL ", "!name=null"),
    ("name LIKE 'n%' ", "?"),
    ("d = DATE '2024-01-01' ", "d=d2024-01-01"),
    ("d = '2024-01-01' ", "d='2024-01-01'"),
    ("ts > TIMESTAMP '2024-01-01' ", "ts>t2024-01-01Session"),
    ("dec > CAST ( 3 AS DECIMAL ( 12 , 2 ) ) ", "dec>3"),
    ("f = 2 ", "f=2"),
    ("b ", "b=true"),
    ("Mixed Case = 3 ", "?"),
    ("s . x = 3 ", "s.x=3"),
    ("n > 2.5 ", "n>2.5"),
    ("n + 1 = 3 ", "?"),
    ("id = '5' ", "id='5'"),
    ("part <=> NULL ", "part<=>null"),
    ("part <=> 'a' ", "part<=>'a'"),
    ("NOT ( id = 1 AND part = 'a' ) ", "!(id=1 & part='a')"),
    ("lower ( name ) = 'n1' ", "?"),
    ("5 = id ", "id=5"),
    ("id <> 3 ", "id<>3"),
    ("CAST ( id AS STRING ) = '3' ", "id:string='3'"),
    ("TRUE ", "*"),
    ("part IS NULL OR part = 'b' ", "(part=null | part='b')"),
    ("name = \"n1\" ", "name=\"n1\""),
    ("id = 1L ", "id=1"),
    ("part = 'a' AND id IN ( 1 , 2 ) ", "(part='a' & id in 1,2)"),
];

/// As Delta on Spark has printed them over the years.
const SPARK_TEXTS: &[(&str, &str)] = &[
    (r#"["(id#12L = 5)"]"#, "id=~5~"),
    (r#"["(order_id#7343 = 102)"]"#, "order_id=~102~"),
    (r#"["(Industry#761 = Retail Trade)"]"#, "Industry=~Retail Trade~"),
    ("(c1#3195878 < 3)", "c1<~3~"),
    (r#"["((id#1L = 5) AND (part#2 = a))"]"#, "(id=~5~ & part=~a~)"),
    (r#"["(((id#1L >= 2) AND (id#1L <= 4)) OR isnull(part#2))"]"#, "((id>=~2~ & id<=~4~) | part=null)"),
    (r#"["(isnotnull(name#3) AND NOT (name#3 = x))"]"#, "(!name=null & !name=~x~)"),
    (r#"["(cast(n#4 as bigint) = 5)"]"#, "n:bigint=~5~"),
    (r#"["id#1L IN (1,2,-3)"]"#, "id in 1,2,-3"),
    (r#"["name#1 IN (a,b)"]"#, "?"),
    (r#"["((id#1L % 2) = 0)"]"#, "?"),
    (r#"["((id#1L = 5) AND ((n#2 + 1) = 3))"]"#, "(id=~5~ & ?)"),
    (r#"["(name#3 <=> null)"]"#, "name<=>?"),
    (r#"["(id#1L = id#2L)"]"#, "id=?"),
    (r#"["b#5"]"#, "b=true"),
    (r#"["(s#5.x = 3)"]"#, "s.x=~3~"),
    (r#"["true"]"#, "*"),
    ("[]", "*"),
    (r#"["(d#3 >= 2024-01-02)"]"#, "d>=~2024-01-02~"),
    (r#"["(spark_catalog.myschema.t.c1 = 3)"]"#, "spark_catalog.myschema.t.c1=3"),
    (r#"["(spark_catalog.delta.`/data/t`.part = 0L)"]"#, "spark_catalog.delta./data/t.part=0"),
    (r#"["(`date` < \"2017-01-01\")","(`id` < CAST('14' AS BIGINT))"]"#, "date<\"2017-01-01\" or id<14"),
    (r#"["((`id` % CAST(2 AS BIGINT)) = CAST(0 AS BIGINT))"]"#, "?"),
    (r#"["(`n` = CAST(2 AS BIGINT))"]"#, "n=2"),
    (r#"["(t.name = 'it\\'s')"]"#, "?"),
];

#[test]
fn recorded_texts_of_deletes_are_understood() {
    for (engine, texts) in [(DELTA_RS, DELTA_RS_TEXTS), (SAIL, SAIL_TEXTS), (SPARK, SPARK_TEXTS)] {
        for (text, expected) in texts {
            assert_eq!(read_by(engine, "DELETE", json!({"predicate": text})), *expected, "{engine}: {text}");
            assert_eq!(read_by(engine, "UPDATE", json!({"predicate": text})), *expected, "{engine}: {text}");
        }
    }
}

#[test]
fn what_is_not_understood_is_wide_where_it_stands() {
    for (text, expected) in [
        ("id = 1 OR rand() > 0.5", "(id=1 | ?)"),
        ("id = 1 AND rand() > 0.5", "(id=1 & ?)"),
        ("NOT (id = 1 AND rand() > 0.5)", "!(id=1 & ?)"),
        ("id IN (SELECT id FROM u WHERE part = 'a' AND x = 1) AND part = 'b'", "(? & part='b')"),
        ("EXISTS (SELECT 1) OR id = 1", "(? | id=1)"),
        ("x BETWEEN 1 AND y AND part = 'b'", "(? & part='b')"),
        ("f(x) BETWEEN 1 AND id = 3", "?"),
        ("CASE WHEN a = 1 AND b = 2 THEN id = 3 ELSE id = 4 END AND part = 'b'", "(? & part='b')"),
        ("id = 3 = true", "?"),
        ("(id = 3) + 1 = 2 AND n = 1", "(? & n=1)"),
        ("id = 3 XOR n = 4", "?"),
        ("id = 3 -- AND part = 'b'", "?"),
        ("id = 3 /* x */ AND n = 1", "?"),
        ("id = - -3", "?"),
        ("id[1] = 3 AND n = 1", "(? & n=1)"),
        ("a || 'x' = 'yx' AND n = 1", "(? & n=1)"),
        ("d = CURRENT_DATE", "?"),
        ("d > DATE '2024-01-01' + INTERVAL 1 DAY", "?"),
        ("id = 3)", "?"),
        ("(id = 3", "?"),
        ("id = 'open", "?"),
        ("", "*"),
        ("1 = 1", "?"),
        ("id >= CAST(3000000000 AS INT)", "id>=?"),
    ] {
        let found = read_by(DELTA_RS, "DELETE", json!({"predicate": text}));
        assert_eq!(found, expected, "{text}");
    }
    // What is no condition as a whole is not used in part.
    for text in [
        "id = 3 AND",
        "id = 3 AND ",
        "AND id = 3",
        "id = 3 AND AND n = 1",
        "id = 3 AND OR n = 1",
        "id = 3 AND NOT",
        "id = 3 AND (",
        "id = 3 AND )",
        "id = 3 AND ()",
        "id = 3 AND (n = 1",
        "id = 3 AND f(n",
        "id = 3 AND n =",
        "id = 3 AND n +",
        "id = 3 AND n IN",
        "id = 3 AND n BETWEEN",
        "id = 3 AND n BETWEEN 1",
        "id = 3 AND n BETWEEN 1 AND",
        "id = 3 AND n LIKE",
        "id = 3 AND n IS",
        "id = 3 AND n IS NOT",
        "id = 3 AND CASE",
        "id = 3 AND CASE WHEN b THEN 1",
        "id = 3 AND (CASE WHEN b) END",
        "id = 3 AND [1)",
        "(id = 3 AND) AND n = 1",
        "NOT",
        "id =",
        "id = 3 AND f(x))",
    ] {
        assert_eq!(read_by(DELTA_RS, "DELETE", json!({"predicate": text})), "?", "{text}");
    }
    for text in [
        "((id#1L = 5) AND )",
        "( AND (id#1L = 5))",
        "((id#1L = 5) AND f(n#2)",
        "((id#1L = 5) AND NOT )",
        "(id#1L = 5) AND",
    ] {
        assert_eq!(read_by(SPARK, "DELETE", json!({"predicate": text})), "?", "{text}");
    }
    // A text in double quotes means another thing to every engine.
    assert_eq!(read_by("who knows", "DELETE", json!({"predicate": "name = \"a\""})), "name=?");
    assert_eq!(read_by(SPARK, "DELETE", json!({"predicate": "name = 'a''b'"})), "name=?");
}

#[test]
fn a_constant_of_spark_that_looks_like_more_is_not_taken_for_it() {
    for constant in [
        "a) AND (id#1L = 3",
        "a)) AND ((id#1L = 3",
        "a) AND ((id#1L = 3)",
        "a) OR (((id#1L = 3)",
        "a AND id#1L",
        "(a",
        "a)",
    ] {
        for text in [
            format!("(name#3 = {constant})"),
            format!("((name#3 = {constant}) AND (x#4 = 1))"),
            format!("((x#4 = 1) OR (name#3 = {constant}))"),
            format!("(((x#4 = 1) OR (name#3 = {constant})) AND (y#5 = 2))"),
            format!("NOT (name#3 = {constant})"),
        ] {
            let found = read_by(SPARK, "DELETE", json!({"predicate": text}));
            assert!(!found.contains("id="), "{text}: {found}");
            assert!(!found.contains("name=~a~"), "{text}: {found}");
        }
    }
}

#[test]
fn depth_and_size_are_bounded() {
    for text in [
        format!("{}id = 1{}", "(".repeat(10_000), ")".repeat(10_000)),
        format!("{}id = 1", "NOT ".repeat(5_000)),
        "(".repeat(50_000),
        format!("id IN ({})", vec!["1"; 15_000].join(",")),
        format!("id = {}", "9".repeat(70_000)),
        format!("[\"{}(id#1 = 1){}\"]", "(".repeat(10_000), ")".repeat(10_000)),
        format!("[\"{}(id#1 = 1)\"]", "NOT ".repeat(5_000)),
        "x".repeat(70_000),
    ] {
        assert_eq!(read_by(DELTA_RS, "DELETE", json!({"predicate": text})), "?", "{:.40}", text);
    }
    let wide = vec!["id = 1"; 3_000].join(" OR ");
    assert!(read_by(DELTA_RS, "DELETE", json!({"predicate": wide})).starts_with("(id=1 | id=1"));
}

#[test]
fn operations_say_what_they_read() {
    let merge = |predicate: &str, by_source: &str| {
        json!({"predicate": predicate, "mergePredicate": "t.id = s.id", "matchedPredicates": "[{\"actionType\":\"update\"}]",
            "notMatchedPredicates": "[]", "notMatchedBySourcePredicates": by_source})
    };
    for (engine, operation, parameters, expected) in [
        (DELTA_RS, "DELETE", json!({}), "whole table"),
        (DELTA_RS, "UPDATE", json!({"predicate": "true"}), "*"),
        (DELTA_RS, "WRITE", json!({"mode": "Overwrite", "predicate": "part = 'a'"}), "part='a'"),
        (DELTA_RS, "WRITE", json!({"mode": "Overwrite", "partitionBy": "[]"}), "whole table"),
        (DELTA_RS, "WRITE", json!({"mode": "Append", "predicate": "part = 'a'"}), "whole table"),
        (DELTA_RS, "MERGE", merge("id >= 1 AND id <= 2 AND part = 'a'", "[]"), "(id>=1 & id<=2 & part='a')"),
        (DELTA_RS, "MERGE", merge("id >= 1", "[{\"actionType\":\"delete\"}]"), "whole table"),
        (DELTA_RS, "MERGE", merge("t.id >= 1", "[]"), "whole table"),
        (
            DELTA_RS,
            "MERGE",
            json!({"mergePredicate": "t.id = s.id", "notMatchedBySourcePredicates": "[]"}),
            "whole table",
        ),
        (SPARK, "MERGE", json!({"predicate": "[\"(id#1L = id#2L)\"]", "matchedPredicates": "[]"}), "whole table"),
        (
            SPARK,
            "MERGE",
            json!({"predicate": "[\"(part#1 = a)\"]", "notMatchedBySourcePredicates": "[]"}),
            "whole table",
        ),
        (SPARK, "RESTORE", json!({"version": "0"}), "whole table"),
        (SPARK, "CREATE OR REPLACE TABLE AS SELECT", json!({}), "whole table"),
        (SPARK, "SOMETHING NEW", json!({"predicate": "[\"(id#1L = 5)\"]"}), "whole table"),
    ] {
        assert_eq!(read_by(engine, operation, parameters.clone()), expected, "{operation} {parameters}");
    }
    let bare = commit(&[rewrite().remove(0), json!({"commitInfo": {"timestamp": 1}})]);
    assert_eq!(reads_of(&bare, None), Reads::WholeTable);
    assert_eq!(reads_of(&commit(&rewrite()), None), Reads::WholeTable);
    // A DELETE that found nothing read all the same; a change of properties did not.
    for (operation, predicates) in [("DELETE", 1), ("SET TBLPROPERTIES", 0)] {
        let info = json!({"commitInfo": {"operation": operation, "operationParameters": {"predicate": "id = 1"}}});
        match reads_of(&commit(&[info]), None) {
            Reads::Some { predicates: found, .. } => assert_eq!(found.len(), predicates, "{operation}"),
            other => panic!("{operation}: {other:?}"),
        }
    }
}

/// Without files, only statements that are known to say nothing of rows read nothing.
#[test]
fn statements_without_files_read_the_whole_table_unless_they_are_known_to_read_no_rows() {
    let nothing = Reads::Some { predicates: vec![], files: vec![] };
    let metadata = |configuration: Value, more: &str| {
        let field = format!(r#"{{"name":"id","type":"long","nullable":true,"metadata":{{{more}}}}}"#);
        let schema = format!(r#"{{"type":"struct","fields":[{field}]}}"#);
        json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
            "partitionColumns": [], "configuration": configuration}})
    };
    let plain = || metadata(json!({"delta.appendOnly": "false"}), "");
    let constrained = || metadata(json!({"delta.constraints.pos": "id > 0"}), "");
    let txn = || json!({"txn": {"appId": "a", "version": 1}});
    for (operation, parameters, action, reads_nothing) in [
        ("SET TBLPROPERTIES", json!({}), txn(), true),
        ("ADD CONSTRAINT", json!({}), constrained(), false),
        ("ADD CONSTRAINT", json!({}), plain(), false),
        ("STREAMING UPDATE", json!({"outputMode": "Append"}), txn(), true),
        ("STREAMING UPDATE", json!({"outputMode": "Complete"}), txn(), false),
        ("WRITE", json!({"mode": "Append"}), txn(), true),
        ("WRITE", json!({"mode": "Overwrite"}), txn(), false),
        ("WRITE", json!({}), txn(), false),
        ("OPTIMIZE", json!({}), txn(), true),
        ("SOMETHING UNKNOWN", json!({}), txn(), false),
        ("REPLACE TABLE AS SELECT", json!({}), plain(), false),
        ("RESTORE", json!({}), txn(), false),
    ] {
        let info = json!({"commitInfo": {"operation": operation, "operationParameters": parameters}});
        let expected = if reads_nothing { nothing.clone() } else { Reads::WholeTable };
        assert_eq!(reads_of(&commit(&[action.clone(), info]), None), expected, "{operation} {action}");
    }
    assert_eq!(reads_of(&commit(&[txn()]), None), Reads::WholeTable, "nobody says what it did");
}

/// A MERGE with a clause for what its source lacks read more than the rows that it looked up.
#[test]
fn a_declared_merge_that_changes_what_its_source_lacks_reads_the_whole_table() {
    for (clauses, whole) in [(r#"[{"actionType":"delete"}]"#, true), ("[]", false)] {
        let mut lines = rewrite();
        lines.push(json!({"commitInfo": {"operation": "MERGE", "readSet": {"v": 1, "predicates":
            [{"op": "=", "col": "id", "value": 1}]}, "operationParameters": {"notMatchedBySourcePredicates": clauses}}}));
        let actions = commit(&lines);
        let found = reads_of(&actions, declared(&actions).unwrap().as_ref());
        assert_eq!(found == Reads::WholeTable, whole, "{clauses}");
    }
}

#[test]
fn compactions_read_what_they_remove() {
    let mut lines = rewrite();
    lines[0]["add"]["dataChange"] = json!(false);
    lines[1]["remove"]["dataChange"] = json!(false);
    lines.push(
        json!({"commitInfo": {"operation": "OPTIMIZE", "operationParameters": {"predicate": "[\"part = 'a'\"]"}}}),
    );
    assert_eq!(reads_of(&commit(&lines), None), Reads::Some { predicates: vec![], files: vec![] });
}

fn declare(read_set: Value) -> Result<Option<DeclaredReadSet>, String> {
    let mut lines = rewrite();
    lines.push(json!({"commitInfo": {"operation": "MERGE", "readSet": read_set}}));
    declared(&commit(&lines))
}

#[test]
fn declared_sets_are_typed_trees() {
    let eq = |col: Value, value: Value| json!({"op": "=", "col": col, "value": value});
    for (predicate, expected) in [
        (eq(json!("id"), json!(5)), "id=5"),
        (eq(json!(["s", "x"]), json!("a")), "s.x='a'"),
        (eq(json!("id"), json!(1.5)), "id=1.5"),
        (eq(json!("id"), json!(null)), "id=null"),
        (eq(json!("b"), json!(true)), "b=true"),
        (json!({"op": "and", "args": [eq(json!("a"), json!(1)), {"op": "rand"}]}), "(a=1 & ?)"),
        (json!({"op": "not", "args": [{"op": "like", "anything": 1}]}), "!?"),
        (json!({"op": "in", "col": "a", "values": [1, "x", null]}), "a in 1,'x',null"),
        (json!({"op": "isNull", "col": "a"}), "a=null"),
        (json!({"op": ">=", "col": "a", "value": "2024-01-01"}), "a>='2024-01-01'"),
    ] {
        let set = declare(json!({"v": 1, "predicates": [predicate]})).unwrap().unwrap();
        assert_eq!(show(&set.predicates[0].predicate), expected, "{predicate}");
    }
    for bad in [
        json!(7),
        json!([]),
        json!({"v": 2}),
        json!({"v": 1, "whole_table": true}),
        json!({"v": 1, "predicates": [], "more": null}),
        json!({"predicates": [{"op": ">=", "col": "a", "value": "2024-01-01", "more": []}]}),
        json!({"predicates": [{"op": "=", "col": "a", "value": 1, "negated": true}]}),
        json!({"predicates": [{"op": "or", "args": [{"op": "isNull", "col": "a", "value": 1}]}]}),
        json!({"wholeTable": "yes"}),
        json!({"files": [{}]}),
        json!({"files": [{"path": "a", "dvID": "x"}]}),
        json!({"predicates": {}}),
        json!({"predicates": ["id = 5"]}),
        json!({"predicates": [{}]}),
        json!({"predicates": [{"op": 1}]}),
        json!({"predicates": [{"op": "="}]}),
        json!({"predicates": [{"op": "=", "col": "a"}]}),
        json!({"predicates": [{"op": "=", "col": [], "value": 1}]}),
        json!({"predicates": [{"op": "=", "col": [1], "value": 1}]}),
        json!({"predicates": [{"op": "=", "col": "a", "value": [1]}]}),
        json!({"predicates": [{"op": "in", "col": "a", "values": 1}]}),
        json!({"predicates": [{"op": "in", "col": "a", "values": [{}]}]}),
        json!({"predicates": [{"op": "and", "args": []}]}),
        json!({"predicates": [{"op": "or"}]}),
        json!({"predicates": [{"op": "not", "args": [{"op": "x"}, {"op": "x"}]}]}),
        json!({"predicates": [{"op": "isNull"}]}),
    ] {
        assert!(declare(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn large_declarations_count_as_unknown() {
    let mut deep = json!({"op": "=", "col": "a", "value": 1});
    for _ in 0..26 {
        deep = json!({"op": "not", "args": [deep]});
    }
    let set = declare(json!({"predicates": [deep]})).unwrap().unwrap();
    assert!(show(&set.predicates[0].predicate).ends_with("!?"));
    let many: Vec<i64> = (0..30_000).collect();
    let set = declare(json!({"predicates": [{"op": "in", "col": "a", "values": many}]})).unwrap().unwrap();
    assert_eq!(show(&set.predicates[0].predicate), "?");
}

#[test]
fn blindness_is_inferred_and_a_contradicted_flag_is_ignored() {
    let add = rewrite().remove(0);
    let remove = rewrite().remove(1);
    let mut moved = add.clone();
    moved["add"]["dataChange"] = json!(false);
    let info = |inner: Value| json!({ "commitInfo": inner });
    let write = |more: Value| {
        let mut parameters = json!({"mode": "Append"});
        for (name, value) in more.as_object().unwrap() {
            parameters[name] = value.clone();
        }
        json!({"operation": "WRITE", "operationParameters": parameters})
    };
    let append = info(write(json!({})));
    let flagged = info(json!({"isBlindAppend": true}));
    let mut reading = write(json!({}));
    reading["isBlindAppend"] = json!(false);
    for (lines, blind) in [
        (vec![&add, &append], true),
        (vec![&add, &flagged], true),
        (vec![&add, &info(reading)], false),
        (vec![&add, &remove, &flagged], false),
        (vec![&moved, &flagged], false),
        (vec![&flagged], false),
        (vec![&add], false),
        (vec![&add, &info(json!({"operation": "MERGE"}))], false),
        (vec![&add, &info(write(json!({"mode": "Overwrite"})))], false),
        (vec![&add, &info(write(json!({"predicate": "p = 1"})))], false),
        (vec![&add, &info(json!({"readSet": {"v": 1}}))], true),
        (vec![&add, &info(json!({"isBlindAppend": true, "readSet": {"v": 1, "wholeTable": true}}))], false),
        (
            vec![
                &add,
                &info(json!({"operation": "STREAMING UPDATE", "operationParameters": {"outputMode": "Append"}})),
            ],
            true,
        ),
    ] {
        let lines: Vec<Value> = lines.into_iter().cloned().collect();
        let actions = commit(&lines);
        let declared = declared(&actions).unwrap();
        assert_eq!(is_blind_append(&actions, declared.as_ref()), blind, "{lines:?}");
    }
}
