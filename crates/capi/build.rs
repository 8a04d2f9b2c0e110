//! Linker arguments of the shared library. Its name for the dynamic linker is `libmend.so.0`; the number
//! changes whenever programs have to be compiled again. The library exports no symbols of other crates.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmend.so.0");
        println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    }
}
