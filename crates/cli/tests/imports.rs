//! Files do not import each other in circles.
//!
//! A file uses another if it names an item that the other defines: in a `use`, in a path, in an
//! attribute, or in the tokens of a macro. A name that is re-exported counts for the file that
//! defines it, so the list of a crate's public names in `lib.rs` is no circle. Functions, modules,
//! imports and `impl` blocks with `#[test]` or `#[cfg(test)]` are not read, nor are strings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::slice::from_ref;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, ItemMod, ItemUse, Lit, Macro, MetaList, UseTree, Visibility};
use tempfile::TempDir;

/// The crates whose files are read: those of the instrument.
const CRATES: [&str; 12] = [
    "cli",
    "contest",
    "contest-build",
    "contest-channels",
    "contest-common",
    "contest-merges",
    "contest-network",
    "contest-process",
    "contest-sandbox",
    "contest-tasks",
    "measure",
    "planted",
];

/// The last name of a path that imports everything.
const GLOB: &str = "*";

/// The names from the root of a crate to a module or an item.
type Names = Vec<String>;

/// What a module names, and what it re-exports.
#[derive(Default)]
struct Module {
    /// The file with its code.
    file: PathBuf,
    /// Names that `use` brings into the module, and what they stand for.
    imports: BTreeMap<String, Names>,
    /// Imports that other modules can see, by their name here.
    exports: BTreeMap<String, Names>,
    /// Every path in the code, as it is written.
    paths: BTreeSet<Names>,
}

/// The modules of one crate, without those for tests.
#[derive(Default)]
struct Crate {
    modules: BTreeMap<Names, Module>,
}

impl Crate {
    fn read(folder: &Path) -> Crate {
        let mut this = Crate::default();
        let source = folder.join("src");
        let root = ["lib.rs", "main.rs"].map(|name| source.join(name)).into_iter().find(|file| file.exists());
        let root = root.unwrap_or_else(|| panic!("{} has no root file", source.display()));
        this.read_file(Vec::new(), &root, &source);
        this
    }

    /// Reads a file and the modules that it declares, whose files are in `folder`.
    fn read_file(&mut self, name: Names, file: &Path, folder: &Path) {
        let code = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let items = syn::parse_file(&code).unwrap_or_else(|error| panic!("{}: {error}", file.display())).items;
        self.read_items(name, file, folder, &items);
    }

    fn read_items(&mut self, name: Names, file: &Path, folder: &Path, items: &[Item]) {
        let mut reader = Reader(Module { file: file.to_owned(), ..Module::default() });
        for item in items {
            match item {
                Item::Mod(child) if is_for_tests(&child.attrs) => {}
                Item::Mod(child) => self.read_child(&name, file, folder, child),
                item => reader.visit_item(item),
            }
        }
        // A module may have two definitions, one for each platform or model.
        let module = self.modules.entry(name).or_insert_with(|| Module { file: file.to_owned(), ..Module::default() });
        module.imports.extend(reader.0.imports);
        module.exports.extend(reader.0.exports);
        module.paths.extend(reader.0.paths);
    }

    fn read_child(&mut self, parent: &Names, file: &Path, folder: &Path, child: &ItemMod) {
        let ident = child.ident.to_string();
        let name = [&parent[..], from_ref(&ident)].concat();
        let inner = folder.join(&ident);
        let beside = file.parent().expect("a file is in a folder");
        match (&child.content, attribute_path(&child.attrs)) {
            (Some((_, items)), None) => self.read_items(name, file, &inner, items),
            (Some((_, items)), Some(path)) => self.read_items(name, file, &beside.join(path), items),
            (None, Some(path)) => self.read_file(name, &beside.join(path), beside),
            (None, None) => {
                let alone = folder.join(format!("{ident}.rs"));
                let file = if alone.exists() { alone } else { inner.join("mod.rs") };
                self.read_file(name, &file, &inner);
            }
        }
    }

    /// The names from the root, of a path that the module `from` has.
    fn absolute(&self, from: &[String], path: &[String]) -> Option<Names> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            // As in `#[rkyv(crate = …)]`.
            "crate" | "self" | "super" if rest.is_empty() => None,
            "crate" => Some(rest.to_vec()),
            "self" if rest.first().is_some_and(|next| next == "super") => self.absolute(from, rest),
            "self" => Some([from, rest].concat()),
            "super" => {
                let parent = &from[..from.len().checked_sub(1)?];
                match rest.first().map(String::as_str) {
                    Some("super") => self.absolute(parent, rest),
                    _ => Some([parent, rest].concat()),
                }
            }
            _ => {
                let child = [from, from_ref(first)].concat();
                // A name alone is no module, but a variable or a function of the same name.
                if !rest.is_empty() && self.modules.contains_key(&child) {
                    return Some([from, path].concat());
                }
                // `use serde;` stands for the crate: it would resolve to itself.
                let import = self.modules.get(from)?.imports.get(first).filter(|import| import[0] != *first)?;
                Some([self.absolute(from, import).as_deref()?, rest].concat())
            }
        }
    }

    /// The file that defines what has these names from the root.
    fn defining_file(&self, names: &[String]) -> Option<&Path> {
        let mut module = Vec::new();
        let mut rest = names;
        while let Some((next, after)) = rest.split_first() {
            module.push(next.clone());
            if !self.modules.contains_key(&module) {
                module.pop();
                break;
            }
            rest = after;
        }
        let here = self.modules.get(&module)?;
        let Some((item, after)) = rest.split_first() else { return Some(&here.file) };
        // A macro is exported by its own name from the file that defines it.
        let Some(export) = here.exports.get(item).filter(|export| **export != [item.clone()]) else {
            return Some(&here.file);
        };
        let export = self.absolute(&module, export)?;
        self.defining_file(&[export, after.to_vec()].concat())
    }

    /// Which files each file uses, with one of the names that it uses.
    fn uses(&self) -> BTreeMap<&Path, BTreeMap<&Path, String>> {
        let mut uses: BTreeMap<&Path, BTreeMap<&Path, String>> = BTreeMap::new();
        for (name, module) in &self.modules {
            let used = uses.entry(&module.file).or_default();
            for path in &module.paths {
                let file = self.absolute(name, path).and_then(|names| self.defining_file(&names));
                if let Some(file) = file.filter(|file| **file != module.file) {
                    let is_glob = path.last().is_some_and(|last| last == GLOB);
                    assert!(!is_glob, "{}: name what `{}` imports", module.file.display(), path.join("::"));
                    used.entry(file).or_insert_with(|| path.join("::"));
                }
            }
        }
        uses
    }
}

/// Collects what one module names.
struct Reader(Module);

impl Reader {
    fn import(&mut self, tree: &UseTree, before: &[String], is_exported: bool) {
        let mut bind = |name: String, path: Names| {
            if is_exported {
                self.0.exports.insert(name.clone(), path.clone());
            } else {
                self.0.paths.insert(path.clone());
            }
            self.0.imports.insert(name, path);
        };
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &[before, &[path.ident.to_string()]].concat(), is_exported),
            UseTree::Name(name) if name.ident == "self" => {
                bind(before.last().cloned().unwrap_or_default(), before.to_vec());
            }
            UseTree::Name(name) => bind(name.ident.to_string(), [before, &[name.ident.to_string()]].concat()),
            UseTree::Rename(name) => bind(name.rename.to_string(), [before, &[name.ident.to_string()]].concat()),
            UseTree::Glob(_) => {
                self.0.paths.insert([before, &[GLOB.to_owned()]].concat());
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before, is_exported)),
        }
    }

    /// The paths among the tokens of a macro.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut path: Names = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end_path(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.end_path(&mut path);
                    self.read_tokens(group.stream());
                }
                _ => self.end_path(&mut path),
            }
        }
        self.end_path(&mut path);
    }

    fn end_path(&mut self, path: &mut Names) {
        if !path.is_empty() {
            self.0.paths.insert(std::mem::take(path));
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        let is_skipped = match item {
            Item::Fn(item) => is_for_tests(&item.attrs),
            Item::Impl(item) => is_for_tests(&item.attrs),
            Item::Use(item) => is_for_tests(&item.attrs),
            _ => false,
        };
        if !is_skipped {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.import(&item.tree, &[], !matches!(item.vis, Visibility::Inherited));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    /// `pub(super)` uses nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_meta_list(&mut self, list: &'ast MetaList) {
        self.read_tokens(list.tokens.clone());
        visit::visit_meta_list(self, list);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.read_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

/// Whether the attributes say `#[test]` or `#[cfg(test)]`.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg_test = |attribute: &Attribute| {
            attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
        };
        attribute.path().is_ident("test") || attribute.path().is_ident("cfg") && is_cfg_test(attribute)
    })
}

/// The value of `#[path = "…"]`.
fn attribute_path(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("path")).find_map(|attribute| {
        let Ok(Expr::Lit(value)) = attribute.meta.require_name_value().map(|path| &path.value) else { return None };
        let Lit::Str(path) = &value.lit else { return None };
        Some(path.value())
    })
}

/// Files that can be reached from each other, sorted into circles.
fn circles<'a>(uses: &BTreeMap<&'a Path, BTreeMap<&'a Path, String>>) -> Vec<BTreeSet<&'a Path>> {
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = uses.keys().map(|&file| (file, reachable(uses, file))).collect();
    let mut circles = BTreeSet::new();
    for (file, others) in &reached {
        if others.contains(file) {
            let is_mutual = |other: &&&Path| reached.get(**other).is_some_and(|back| back.contains(file));
            circles.insert(others.iter().filter(is_mutual).copied().collect::<BTreeSet<_>>());
        }
    }
    circles.into_iter().collect()
}

/// The files that a file uses, directly and through others.
fn reachable<'a>(uses: &BTreeMap<&'a Path, BTreeMap<&'a Path, String>>, from: &Path) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Path> = vec![from];
    while let Some(file) = next.pop() {
        for &used in uses.get(file).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(used) {
                next.push(used);
            }
        }
    }
    reached
}

/// What is wrong with a crate: each use within a circle, a line each.
fn faults(folder: &Path) -> Vec<String> {
    let read = Crate::read(folder);
    let uses = read.uses();
    let mut faults = Vec::new();
    for circle in circles(&uses) {
        for file in &circle {
            for (used, name) in uses[file].iter().filter(|(used, _)| circle.contains(*used)) {
                let [file, used] = [file, used].map(|file| file.strip_prefix(folder).unwrap_or(file).display());
                faults.push(format!("{file} uses {used} ({name})"));
            }
        }
    }
    faults
}

#[test]
fn files_do_not_use_each_other_in_circles() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in CRATES {
        let faults = faults(&crates.join(name));
        assert_eq!(faults, [""; 0], "crates/{name}: move what both files need into a third");
    }
}

#[test]
fn a_circle_is_found_through_re_exports_and_macros() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, code: &str| fs::write(folder.path().join("src").join(name), code).unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    write("lib.rs", "mod a; mod b; mod c; pub use b::Second;");
    write("a.rs", "pub(super) struct First; fn f() { println!(\"{}\", crate::Second::NAME) }");
    write("b.rs", "use crate::a::First; pub struct Second(First);");
    write("c.rs", "use super::a::First; #[cfg(test)] mod tests { fn f() { super::super::lib() } }");
    assert_eq!(
        faults(folder.path()),
        ["src/a.rs uses src/b.rs (crate::Second::NAME)", "src/b.rs uses src/a.rs (First)"]
    );
    write("a.rs", "pub(super) struct First; macro_rules! make { () => {} } pub(crate) use make;");
    assert_eq!(faults(folder.path()), [""; 0]);
    write(
        "a.rs",
        "pub(super) struct First; #[derive(crate::b::Made)] struct Third; macro_rules! m { () => {} } pub(crate) use m;",
    );
    write("b.rs", "fn f() { crate::a::m!() }");
    let both = ["src/a.rs uses src/b.rs (crate::b::Made)", "src/b.rs uses src/a.rs (crate::a::m)"];
    assert_eq!(faults(folder.path()), both);
}
