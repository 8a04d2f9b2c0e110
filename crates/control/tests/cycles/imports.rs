//! The files that each file of a crate imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::graph::Imports;

/// The modules of a crate by their paths; the root is the empty path.
#[derive(Default)]
pub struct Crate {
    modules: BTreeMap<Vec<String>, Module>,
}

/// What a module declares, and the paths that its code contains.
#[derive(Default)]
struct Module {
    file: String,
    children: BTreeSet<String>,
    /// Names of items, macros included.
    items: BTreeSet<String>,
    macros: BTreeSet<String>,
    /// Names that are items if no other item has them: names that the definition of a macro contains, and
    /// arguments of macros that are called between items.
    made: BTreeSet<String>,
    uses: Vec<Use>,
    paths: BTreeSet<Vec<String>>,
    /// Identifiers outside of `use` declarations, and the names of called macros.
    idents: BTreeSet<String>,
    calls: BTreeSet<String>,
}

/// One name of a `use` declaration.
struct Use {
    /// The local name; `*` for all names.
    name: String,
    path: Vec<String>,
    is_reexport: bool,
}

/// The target of a path.
enum Meaning {
    Module(Vec<String>),
    /// An item in this file.
    Item(String),
}

impl Crate {
    /// Reads the files of a crate from its root `lib.rs`, without code that is only for tests.
    pub fn read(read: impl Fn(&Path) -> Option<String>) -> Self {
        let mut all = Self::default();
        let mut next = vec![Vec::new()];
        while let Some(path) = next.pop() {
            let (file, text) = source(&path, &read);
            let tokens = text.parse().unwrap_or_else(|why| panic!("{}: {why}", file.display()));
            next.extend(all.add(&path, &file.display().to_string(), tokens));
        }
        all
    }

    /// Adds a module with its code, and the modules in it that are declared inline. Returns its other modules.
    fn add(&mut self, path: &[String], file: &str, tokens: TokenStream) -> Vec<Vec<String>> {
        let below = |name: &String| [path, std::slice::from_ref(name)].concat();
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        let inline = module.take(tokens, true);
        let mut others: Vec<Vec<String>> = module
            .children
            .iter()
            .filter(|child| !inline.iter().any(|(it, _)| it == *child))
            .map(below)
            .collect();
        self.modules.insert(path.to_vec(), module);
        for (name, body) in inline {
            others.extend(self.add(&below(&name), file, body));
        }
        others
    }

    /// Returns the imports of all files.
    pub fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (at, module) in &self.modules {
            let used = module.uses.iter().filter(|it| !it.is_reexport || module.idents.contains(&it.name));
            let used = used.map(|it| &it.path).chain(&module.paths);
            let found = used.filter_map(|path| Some((self.file_of(at, path)?, path.join("::"))));
            let calls = module.calls.iter();
            let called = calls.filter_map(|name| Some((self.file_of_macro(at, name)?, format!("{name}!"))));
            let files = imports.entry(module.file.clone()).or_default();
            for (file, path) in found.chain(called).filter(|(file, _)| *file != module.file) {
                files.entry(file).or_insert(path);
            }
        }
        imports
    }

    /// Returns the file of the item that a path in this module names; `None` for modules and other crates.
    fn file_of(&self, at: &[String], path: &[String]) -> Option<String> {
        match self.resolve(at, path, 0) {
            Some(Meaning::Item(file)) => Some(file),
            Some(Meaning::Module(_)) => None,
            None => {
                let is_ours = ["crate", "super", "self"].contains(&path[0].as_str());
                assert!(!is_ours, "{}: {} is not found", self.modules[at].file, path.join("::"));
                None
            }
        }
    }

    /// Returns the file of a macro that is in scope by its name alone.
    fn file_of_macro(&self, at: &[String], name: &str) -> Option<String> {
        let above = (0..=at.len()).rev().map(|depth| &self.modules[&at[..depth]]);
        Some(above.into_iter().find(|module| module.macros.contains(name))?.file.clone())
    }

    fn resolve(&self, at: &[String], path: &[String], depth: usize) -> Option<Meaning> {
        if depth > 16 {
            return None; // Two modules re-export each other's names.
        }
        let mut at = at.to_vec();
        for (place, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                "*" => return Some(Meaning::Item(self.modules[&at].file.clone())),
                name => match self.look_up(&at, name, depth, place > 0)? {
                    Meaning::Module(path) => at = path,
                    item => return Some(item),
                },
            }
        }
        Some(Meaning::Module(at))
    }

    /// Returns the meaning of a name in a module. The first name of a path may be a crate.
    fn look_up(&self, at: &[String], name: &str, depth: usize, is_ours: bool) -> Option<Meaning> {
        let module = &self.modules[at];
        if module.children.contains(name) {
            return Some(Meaning::Module([at, &[name.to_owned()]].concat()));
        }
        if module.items.contains(name) {
            return Some(Meaning::Item(module.file.clone()));
        }
        // A declaration such as `use name::name` names another crate.
        let named = module.uses.iter().find(|it| it.name == name && (is_ours || it.path[0] != name));
        if let Some(named) = named {
            return self.resolve(at, &named.path, depth + 1);
        }
        let elsewhere = module.uses.iter().filter(|it| it.name == "*").find_map(|it| {
            let Some(Meaning::Module(from)) = self.resolve(at, &it.path[..it.path.len() - 1], depth + 1)
            else {
                return None;
            };
            if from == at { None } else { self.look_up(&from, name, depth + 1, true) }
        });
        elsewhere.or_else(|| module.made.contains(name).then(|| Meaning::Item(module.file.clone())))
    }
}

impl Module {
    /// Takes the tokens of the module or of a group in it. Returns the modules that are declared inline.
    fn take(&mut self, tokens: TokenStream, is_top: bool) -> Vec<(String, TokenStream)> {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut inline = Vec::new();
        let mut at = 0;
        let mut is_public = false;
        while at < tokens.len() {
            let rest = &tokens[at..];
            if let Some(attribute) = attribute(rest) {
                at += 2;
                at += if is_for_tests(attribute) { item_length(&tokens[at..]) } else { 0 };
                continue;
            }
            match (&rest[0], word(rest, 0).as_str(), word(rest, 1)) {
                (_, "pub", _) => {
                    is_public = true;
                    at += if group(rest, 1, Delimiter::Parenthesis).is_some() { 2 } else { 1 };
                    continue;
                }
                (_, "use", _) => {
                    let end = rest.iter().position(|it| is_punct(it, ';')).unwrap_or(rest.len());
                    self.take_use(&rest[1..end], &[], is_public);
                    at += end;
                }
                (_, "mod", name) => {
                    self.children.insert(name.clone());
                    inline.extend(group(rest, 2, Delimiter::Brace).map(|body| (name, body.stream())));
                    at += 3;
                }
                (_, "macro_rules", _) => {
                    self.items.insert(word(rest, 2));
                    self.macros.insert(word(rest, 2));
                    at += 3;
                }
                (_, "struct" | "enum" | "union" | "fn" | "trait" | "type" | "const" | "static", name) => {
                    let names = if is_top { &mut self.items } else { &mut self.made };
                    names.insert(name);
                    at += 1;
                }
                (TokenTree::Ident(_), first, _) => {
                    self.idents.insert(first.to_owned());
                    let path = path(rest);
                    let is_foreign = at > 1 && tokens[at - 2..at].iter().all(|it| is_punct(it, ':'));
                    at += 3 * path.len() - 2;
                    if is_foreign {
                        // `::name` is another crate, and `<T as Trait>::name` belongs to a type.
                    } else if path.len() > 1 {
                        self.paths.insert(path);
                    } else if rest.get(1).is_some_and(|it| is_punct(it, '!')) {
                        self.calls.insert(first.to_owned());
                        if let (true, Some(TokenTree::Group(arguments))) = (is_top, rest.get(2)) {
                            let tokens: Vec<TokenTree> = arguments.stream().into_iter().collect();
                            self.made.extend((0..tokens.len()).map(|at| word(&tokens, at)));
                        }
                    }
                }
                (TokenTree::Group(group), ..) => {
                    inline.extend(self.take(group.stream(), false));
                    at += 1;
                }
                _ => at += 1,
            }
            is_public = false;
        }
        inline
    }

    /// Takes the names of a `use` declaration, or of a part of it below `above`.
    fn take_use(&mut self, tokens: &[TokenTree], above: &[String], is_reexport: bool) {
        let mut path = above.to_vec();
        if path.is_empty() && tokens.first().is_some_and(|it| is_punct(it, ':')) {
            return; // The path begins with `::` and names another crate.
        }
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => {
                    let parts: Vec<TokenTree> = group.stream().into_iter().collect();
                    parts
                        .split(|it| is_punct(it, ','))
                        .filter(|it| !it.is_empty())
                        .for_each(|part| self.take_use(part, &path, is_reexport));
                    return;
                }
                TokenTree::Ident(name) if name == "as" => {
                    self.uses.push(Use { name: word(tokens, at + 1), path, is_reexport });
                    return;
                }
                TokenTree::Ident(name) if name == "self" && !path.is_empty() => {}
                TokenTree::Ident(name) => path.push(name.to_string()),
                token if is_punct(token, '*') => path.push("*".to_owned()),
                _ => {}
            }
        }
        self.uses.push(Use { name: path.last().cloned().unwrap_or_default(), path, is_reexport });
    }
}

/// Returns the file of a module, and its text.
fn source(path: &[String], read: impl Fn(&Path) -> Option<String>) -> (PathBuf, String) {
    let folder: PathBuf = path.iter().collect();
    let files = match path {
        [] => vec![PathBuf::from("lib.rs")],
        _ => vec![folder.with_extension("rs"), folder.join("mod.rs")],
    };
    let found = files.into_iter().find_map(|file| read(&file).map(|text| (file, text)));
    found.unwrap_or_else(|| panic!("module {} has no file", path.join("::")))
}

/// Returns the attribute with which tokens begin.
fn attribute(tokens: &[TokenTree]) -> Option<&Group> {
    tokens.first().filter(|it| is_punct(it, '#'))?;
    group(tokens, 1, Delimiter::Bracket)
}

fn is_for_tests(attribute: &Group) -> bool {
    attribute.stream().to_string().replace(' ', "") == "cfg(test)"
}

/// Returns the number of tokens of the item with which tokens begin.
fn item_length(tokens: &[TokenTree]) -> usize {
    let is_use = (0..3).any(|at| word(tokens, at) == "use");
    let ends = |it: &TokenTree| match it {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && !is_use,
        token => is_punct(token, ';'),
    };
    tokens.iter().position(ends).map_or(tokens.len(), |end| end + 1)
}

/// Returns the names of the path with which tokens begin.
fn path(tokens: &[TokenTree]) -> Vec<String> {
    let mut path = vec![word(tokens, 0)];
    let mut rest = &tokens[1..];
    while let [one, two, TokenTree::Ident(name), ..] = rest
        && is_punct(one, ':')
        && is_punct(two, ':')
    {
        path.push(name.to_string());
        rest = &rest[3..];
    }
    path
}

fn word(tokens: &[TokenTree], at: usize) -> String {
    match tokens.get(at) {
        Some(TokenTree::Ident(word)) => word.to_string(),
        _ => String::new(),
    }
}

fn group(tokens: &[TokenTree], at: usize, delimiter: Delimiter) -> Option<&Group> {
    match tokens.get(at) {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}
