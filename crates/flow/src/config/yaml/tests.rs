use super::*;

fn tree(text: &str) -> Node {
    parse(text.as_bytes()).map(|document| document.root).unwrap()
}

fn failure(text: &str) -> String {
    let Failure { position, message, .. } = parse(text.as_bytes()).unwrap_err();
    format!("{}:{} {message}", position.line, position.column)
}

/// Prints a node as YAML in one line, with positions.
fn shown(node: &Node) -> String {
    let Position { line, column } = node.position;
    let value = match &node.value {
        Value::Scalar(scalar) => scalar.text.to_string(),
        Value::List(nodes) => format!("[{}]", nodes.iter().map(shown).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let entry = |entry: &Entry| {
                let Position { line, column } = entry.key_position;
                format!("{}@{line}:{column}: {}", entry.key, shown(&entry.node))
            };
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    };
    format!("{value}@{line}:{column}")
}

#[test]
fn keys_and_values_have_positions() {
    let text = "a: 1\nbé:\n  - x\n  - {c: 'd', é: e}\n";
    let expected = "{a@1:1: 1@1:4, bé@2:1: [x@3:5, {c@4:6: d@4:9, é@4:14: e@4:17}@4:5]@3:3}@1:1";
    assert_eq!(shown(&tree(text)), expected);
}

#[test]
fn crlf_line_ends_and_a_byte_order_mark_are_accepted() {
    assert_eq!(shown(&tree("\u{feff}a: 1\r\nb: 2\r\n")), shown(&tree("a: 1\nb: 2\n")));
}

#[test]
fn plain_scalars_have_the_types_of_yaml_1_2() {
    let kind = |text: &str| match tree(&format!("[{text}]")).value {
        Value::List(nodes) => match &nodes[0].value {
            Value::Scalar(scalar) => scalar.kind(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    for number in ["0", "-1", "+12", "0x1F", "0o17", "1.5", ".5", "1e3", ".inf", "-.INF", ".nan"] {
        assert_eq!(kind(number), ScalarKind::Number, "{number}");
    }
    for text in
        ["yes", "on", "1s", "0x", "0xg", "inf", "nan", "infinity", "1_000", "'1'", "\"true\"", "!!str 5", "e3", "."]
    {
        assert_eq!(kind(text), ScalarKind::Text, "{text}");
    }
    for null in ["null", "~", "Null"] {
        assert_eq!(kind(null), ScalarKind::Null, "{null}");
    }
    assert_eq!(kind("True"), ScalarKind::Flag(true));
}

#[test]
fn syntax_errors_have_positions() {
    assert_eq!(failure(""), "1:1 the file is empty");
    assert_eq!(failure("# only this\n"), "2:1 the file is empty");
    assert_eq!(failure("a: 1\n---\nb: 2\n"), "2:1 a second document in the file");
    assert_eq!(failure("a: 1\n? [b]\n: 2\n"), "2:3 a list or map as a key");
    assert_eq!(failure("a: !secret b\n"), "1:4 the tag `!secret` has no meaning here");
    assert!(failure("a: [1\nb: 2\n").starts_with("2:"));
    assert!(failure("a: *b\n").contains("not YAML"));
    let Failure { position, message, .. } = parse(b"a: b\nc\xc3\xa4: \xff").unwrap_err();
    assert_eq!((position, message.as_str()), (Position { line: 2, column: 5 }, "the file is not text in UTF-8"));
}

#[test]
fn duplicate_keys_are_reported_and_the_rest_is_read() {
    let Document { root, duplicates, .. } = parse(b"a: 1\nb: 2\na: 3\n").unwrap();
    assert_eq!(shown(&root), "{a@1:1: 1@1:4, b@2:1: 2@2:4}@1:1");
    let [Failure { position, message, help }] = duplicates.as_slice() else { panic!("{duplicates:?}") };
    assert_eq!((position, message.as_str()), (&Position { line: 3, column: 1 }, "the key `a` is there twice"));
    assert!(help.contains("line 1"));
}

#[test]
fn an_alias_stands_for_its_anchor() {
    let text = "a: &x {b: 1}\nc: *x\n";
    assert_eq!(tree(text).get("a"), tree(text).get("c"));
}

#[test]
fn hostile_files_are_refused() {
    // Nine levels of nine: a billion values.
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    assert!(failure(&bomb).contains("aliases expanded"), "{}", failure(&bomb));

    // A text that is used in many places is in memory only once.
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(900_000), "*a, ".repeat(15_000));
    assert!(parse(long.as_bytes()).is_ok());

    assert!(failure("a: &a [*a]\n").contains("not"), "{}", failure("a: &a [*a]\n"));
    assert!(failure(&"[".repeat(100)).contains("nested"));
    assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    assert!(failure(&"- ".repeat(100_000)).contains("nested"));
    let mut nested = String::from("a0: &a0 [x]\n");
    for level in 1..40 {
        nested.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    assert!(failure(&nested).contains("nested"), "{}", failure(&nested));
    assert!(failure(&"- x\n".repeat(30_000)).contains("more than"));
    assert!(failure(&"x".repeat(MAX_BYTES + 1)).contains("longer than 1 MiB"));
}
