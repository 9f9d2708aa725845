//! A source file as a row of tokens: which of them are compiled for tests only, what they import, how many lines they
//! fill. It knows no rule.

use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};

/// One token of code. Comments and docs leave none.
#[derive(Clone)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) first_line: usize,
    last_line: usize,
    /// Whether it belongs to an item under `#[cfg(test)]` or `#[test]`.
    test: bool,
}

impl Token {
    fn new(text: &impl ToString, span: Span) -> Self {
        let (first_line, last_line) = (span.start().line, span.end().line);
        Self { text: text.to_string(), first_line, last_line, test: false }
    }
}

/// Which code a ban holds for: what a host gets, or all there is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scope {
    Shipped,
    TestsToo,
}

pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
    /// Whether the whole file is a module under `#[cfg(test)]`.
    test: bool,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let stream: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        let mut tokens = without_docs(&tokens);
        mark_tests(&mut tokens);
        Self { path: path.to_owned(), text: text.to_owned(), tokens, test: false }
    }

    /// The first folder or file below `src`.
    pub(crate) fn room(&self) -> &str {
        let inside = self.path.trim_start_matches("src/");
        inside.split(['/', '.']).next().unwrap_or(inside)
    }

    /// How many modules deep the file itself is: 0 for the face, 1 for a room's own file.
    fn depth(&self) -> usize {
        let own = ["/lib.rs", "/mod.rs"].iter().any(|name| self.path.ends_with(name));
        self.path.matches('/').count() - usize::from(own)
    }

    pub(crate) fn breach(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }

    pub(crate) fn is_test(&self, token: &Token) -> bool {
        self.test || token.test
    }

    /// A breach for each place where one of `patterns` stands, its tokens parted by spaces.
    pub(crate) fn bans(&self, patterns: &[&str], scope: Scope, instead: &str) -> Vec<String> {
        let mut breaches = Vec::new();
        for pattern in patterns {
            let words: Vec<&str> = pattern.split(' ').collect();
            for window in self.tokens.windows(words.len()) {
                let found = window.iter().zip(&words).all(|(token, word)| token.text == *word);
                if found && (scope == Scope::TestsToo || !self.is_test(&window[0])) {
                    let what = format!("`{}` has no place here; {instead}", words.concat());
                    breaches.push(self.breach(window[0].first_line, &what));
                }
            }
        }
        breaches
    }

    /// What the file names right below the root of the crate, in `use` and in paths: by `crate` or by enough `super`s.
    pub(crate) fn imports(&self) -> Vec<Token> {
        let mut imports = Vec::new();
        let mut braces = Vec::new();
        let mut supers = 0;
        for (at, token) in self.tokens.iter().enumerate() {
            let before =
                |back: usize| at.checked_sub(back).map_or("", |index| self.tokens[index].text.as_str());
            match token.text.as_str() {
                // Whether the brace opens a module.
                "{" => braces.push(before(2) == "mod"),
                "}" => drop(braces.pop()),
                _ => {}
            }
            let depth = self.depth() + braces.iter().filter(|module| **module).count();
            supers = match token.text.as_str() {
                "super" => supers + 1,
                "::" => supers,
                _ => 0,
            };
            let root = token.text == "crate" || supers == depth && token.text == "super";
            if root && self.tokens.get(at + 1).is_some_and(|next| next.text == "::") {
                imports.extend(firsts(&self.tokens[at + 2..]));
            }
        }
        imports
    }
}

/// How many lines hold one of `tokens` outside of test items.
pub(crate) fn code_lines(tokens: &[Token]) -> usize {
    let code = tokens.iter().filter(|token| !token.test);
    let mut lines: Vec<usize> = code.flat_map(|token| token.first_line..=token.last_line).collect();
    lines.sort_unstable();
    lines.dedup();
    lines.len()
}

/// The first name of a path, or of each path of a `{…}` group.
fn firsts(tokens: &[Token]) -> Vec<Token> {
    if tokens[0].text != "{" {
        return vec![tokens[0].clone()];
    }
    let mut depth = 0;
    let mut firsts = Vec::new();
    for pair in tokens.windows(2) {
        match pair[0].text.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        let begins = pair[0].text == "{" || pair[0].text == ",";
        if depth == 1 && begins && pair[1].text != "}" {
            firsts.push(pair[1].clone());
        }
    }
    firsts
}

/// Turns the tree of tokens into a row of tokens, with `::` as one of them.
fn flatten(stream: TokenStream, row: &mut Vec<Token>) {
    let mut joint = false;
    for tree in stream {
        let colon = matches!(&tree, TokenTree::Punct(punct) if punct.as_char() == ':');
        match (&tree, row.last_mut()) {
            (TokenTree::Group(group), _) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::None => ("", ""),
                };
                row.push(Token::new(&open, group.span_open()));
                flatten(group.stream(), row);
                row.push(Token::new(&close, group.span_close()));
            }
            (_, Some(last)) if colon && joint => last.text.push(':'),
            _ => row.push(Token::new(&tree, tree.span())),
        }
        joint = colon && matches!(&tree, TokenTree::Punct(punct) if punct.spacing() == Spacing::Joint);
    }
}

/// Leaves out doc comments, which reach us as `#[doc = "…"]` and `#![doc = "…"]`.
fn without_docs(row: &[Token]) -> Vec<Token> {
    let begins = |at: usize, words: &[&str]| {
        row.len() >= at + words.len() && row[at..].iter().zip(words).all(|(token, word)| token.text == *word)
    };
    let mut kept = Vec::new();
    let mut at = 0;
    while at < row.len() {
        if begins(at, &["#", "[", "doc", "="]) {
            at += 6;
        } else if begins(at, &["#", "!", "[", "doc", "="]) {
            at += 7;
        } else {
            kept.push(row[at].clone());
            at += 1;
        }
    }
    kept
}

/// Marks each item under `#[test]` or a `#[cfg(…)]` that asks for `test`. A field, variant or arm is no item.
fn mark_tests(tokens: &mut [Token]) {
    const ITEMS: &str = "mod fn use impl const static struct enum type trait macro_rules let";
    for start in 0..tokens.len() {
        let (mut at, mut test) = (start, false);
        // All the attributes in a row, then the visibility, then the item.
        while at + 2 < tokens.len() && tokens[at].text == "#" && tokens[at + 1].text == "[" {
            let end = closing(tokens, at + 1);
            let has = |word: &str| tokens[at..end].iter().any(|token| token.text == word);
            let cfg = tokens[at + 2].text == "cfg" && !has("not") && !has("any");
            test |= has("test") && (cfg || end == at + 3);
            at = end + 1;
        }
        if !test {
            continue;
        }
        if tokens.get(at).is_some_and(|token| token.text == "pub") {
            at += 1;
            at = if tokens[at].text == "(" { closing(tokens, at) + 1 } else { at };
        }
        if tokens.get(at).is_some_and(|token| ITEMS.split(' ').any(|item| item == token.text)) {
            let end = item_end(tokens, at);
            tokens[start..=end].iter_mut().for_each(|token| token.test = true);
        }
    }
}

/// Where the bracket that opens at `open` closes.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len() - 1
}

/// Where the item that begins at `start` ends: at its `;` or with its first braces.
pub(crate) fn item_end(tokens: &[Token], start: usize) -> usize {
    let mut at = start;
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            ";" => return at,
            "{" => return closing(tokens, at),
            "(" | "[" => at = closing(tokens, at),
            _ => {}
        }
        at += 1;
    }
    tokens.len() - 1
}

/// Every file below `src`.
pub(crate) fn house() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let mut folders = vec![root.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("src can be listed") {
            let path = entry.expect("src can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let inside = path.strip_prefix(root).expect("it lies below the root").to_string_lossy();
                let text = fs::read_to_string(&path).expect("a source file can be read");
                files.push(File::new(&inside, &text));
            }
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    let tests: Vec<String> = files.iter().flat_map(test_modules).collect();
    for file in &mut files {
        file.test = tests.iter().any(|module| file.path.starts_with(module));
    }
    files
}

/// The paths, up to the `.` or `/`, of the modules that a file declares for tests only and that stand in files.
pub(crate) fn test_modules(file: &File) -> Vec<String> {
    let stem = file.path.trim_end_matches(".rs");
    let folder = stem.trim_end_matches("/mod").trim_end_matches("/lib");
    let declared = file.tokens.windows(3).filter(|three| three[0].text == "mod" && three[2].text == ";");
    let names = declared.filter(|three| file.is_test(&three[0])).map(|three| &three[1].text);
    names.flat_map(|name| [format!("{folder}/{name}.rs"), format!("{folder}/{name}/")]).collect()
}
