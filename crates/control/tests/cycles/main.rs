//! Checks that no files of this crate import each other in a cycle, so that each file can be read after the
//! files that it uses. Imports are paths to items. Calls of methods are not seen, because they need no import.

mod graph;
mod imports;

use std::fs;
use std::path::Path;

use graph::cycles;
use imports::Crate;

/// Returns the cycles of a crate whose files are in `read`, each as a chain of file names.
fn cycles_of(read: impl Fn(&Path) -> Option<String>) -> Vec<String> {
    cycles(&Crate::read(read).imports()).iter().map(ToString::to_string).collect()
}

#[test]
fn no_file_cycle_is_left() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let found = cycles_of(|file| fs::read_to_string(source.join(file)).ok());
    assert!(
        found.is_empty(),
        "files of crates/control/src import each other; move what they share to a file of its own:\n{}",
        found.join("\n")
    );
}

/// The cycles of a crate with these files.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    cycles_of(|path| Some(files.iter().find(|(name, _)| Path::new(name) == path)?.1.to_owned()))
}

const LIB: (&str, &str) = ("lib.rs", "mod a; mod b;");

#[test]
fn files_that_use_each_other_are_a_cycle() {
    let b = ("b.rs", "pub struct B; fn f(_: super::a::A) {}");
    let cycle = "2 files: a.rs -> b.rs (crate::b::B) -> a.rs (super::a::A)";
    assert_eq!(found(&[LIB, ("a.rs", "use crate::b::{B as C}; pub struct A;"), b]), [cycle]);
    assert_eq!(found(&[LIB, ("a.rs", "pub struct A(Vec<crate::b::B>);"), b]), [cycle]);
    assert_eq!(found(&[LIB, ("a.rs", "use crate::b; pub struct A(b::B);"), b]).len(), 1);
    assert_eq!(found(&[LIB, ("a.rs", "use super::b::*; pub struct A(B);"), b]).len(), 1);
    assert_eq!(found(&[LIB, ("a.rs", "use crate::{b::{self as c}}; struct A(c::B);"), b]).len(), 1);
    assert_eq!(found(&[LIB, ("a.rs", "use ::b::B; pub struct A(::b::C);"), b]), [""; 0]);
}

#[test]
fn longer_cycles_are_found_too() {
    let lib = ("lib.rs", "mod a; mod b { pub mod c; }");
    let a = ("a.rs", "use crate::b::c::d::D; pub struct A;");
    let (c, d) =
        (("b/c/mod.rs", "pub mod d; pub type C = crate::a::A;"), ("b/c/d.rs", "pub struct D(super::C);"));
    let cycle =
        "3 files: a.rs -> b/c/d.rs (crate::b::c::d::D) -> b/c/mod.rs (super::C) -> a.rs (crate::a::A)";
    assert_eq!(found(&[lib, a, c, d]), [cycle]);
}

#[test]
fn a_reexported_name_counts_for_the_file_that_defines_it() {
    let lib = ("lib.rs", "mod a; mod b; pub use b::{B, C as D};");
    let a = ("a.rs", "use crate::{B, D}; pub struct A;");
    assert_eq!(found(&[lib, a, ("b.rs", "pub struct B; pub struct C;")]), [""; 0]);
    let cycle = "2 files: a.rs -> b.rs (crate::B) -> a.rs (crate::a::A)";
    assert_eq!(found(&[lib, a, ("b.rs", "pub struct B; pub struct C(crate::a::A);")]), [cycle]);
}

#[test]
fn a_parent_that_uses_its_child_is_part_of_a_cycle() {
    let a = ("a.rs", "pub struct A(super::N);");
    let cycle = "2 files: a.rs -> lib.rs (super::N) -> a.rs (a::A)";
    assert_eq!(found(&[("lib.rs", "mod a; pub use a::A; struct N; fn f(_: A) {}"), a]), [cycle]);
    assert_eq!(found(&[("lib.rs", "mod a; pub use a::A; struct N;"), a]), [""; 0]);
}

#[test]
fn tests_strings_and_comments_do_not_count() {
    let test = "#[cfg(test)] mod tests { use crate::b::B; } #[cfg(test)] use crate::b::B; pub struct A;";
    let text = "/// See [crate::b::B].\npub struct A; // crate::b::B\nconst T: &str = \"crate::b::B\";";
    for a in [test, text] {
        assert_eq!(found(&[LIB, ("a.rs", a), ("b.rs", "pub struct B(crate::a::A);")]), [""; 0]);
    }
}

#[test]
fn names_that_a_macro_defines_belong_to_the_file_that_calls_it() {
    let a = "macro_rules! ids { ($($id:ident),*) => { $(pub struct $id;)* pub struct All; } } ids!(A); \
             use crate::b::B;";
    let cycle = |name| format!("2 files: a.rs -> b.rs (crate::b::B) -> a.rs (crate::a::{name})");
    for (name, b) in [("A", "pub struct B(crate::a::A);"), ("All", "pub struct B(crate::a::All);")] {
        assert_eq!(found(&[LIB, ("a.rs", a), ("b.rs", b)]), [cycle(name)]);
    }
}

#[test]
fn a_macro_counts_where_it_is_used() {
    let lib = ("lib.rs", "macro_rules! make { () => { $crate::a::A } } mod a; mod b;");
    let b = ("b.rs", "fn f() { make!(); }");
    assert_eq!(found(&[lib, ("a.rs", "pub struct A;"), b]), [""; 0]);
    let cycle = "2 files: a.rs -> lib.rs (make!) -> a.rs (crate::a::A)";
    assert_eq!(found(&[lib, ("a.rs", "pub struct A; fn f() { make!(); }"), b]), [cycle]);
}
