//! Verbs on files: put, get, ls, rm.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use client::{Client, FileView, GetOptions, GetTarget, Got, PutOptions, no_progress};
use repair::Scheme;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::args::{GetArgs, LsArgs, PutArgs, RmArgs};
use crate::failure::{Exit, Failure};
use crate::format::{self, block_size, count, date, is_obeyed, printable, size, table, time};
use crate::progress::Bar;

/// Implements `mend put`.
pub async fn put(client: &Client, args: PutArgs) -> Result<Answer, Failure> {
    let name = match args.name {
        Some(name) => name,
        None => file_name(&args.file)?,
    };
    let options = PutOptions {
        code: args.code.map(|code| code.to_string()),
        block_bytes: args.block_size.map(|size| size.bytes()),
        chunk_bytes: args.chunk.map(|size| size.bytes()),
        replace: args.replace,
    };
    let bytes = std::fs::metadata(&args.file).map_or(0, |found| found.len());
    let bar = Bar::new(&format!("put {name}"), bytes);
    let start = Instant::now();
    let file = client.put(&args.file, &name, &options, bar.progress()).await?;
    drop(bar);
    let text = format!(
        "put {}: {} in {} of {}, {}",
        printable(&file.name),
        size(file.bytes),
        count(file.stripes, "stripe"),
        file.code,
        rate(file.bytes, start)
    );
    Ok(Answer::new(text, &file))
}

fn file_name(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(|name| name.to_str()).filter(|name| !name.contains(is_obeyed));
    name.map(str::to_owned).ok_or_else(|| {
        let path = path.display().to_string();
        Failure::new(format!("{} contains no name that is safe to store the file under", printable(&path)))
            .help("choose a name with --name NAME")
    })
}

/// Implements `mend get`.
pub async fn get(client: &Client, args: GetArgs, default_scheme: &str) -> Result<Answer, Failure> {
    let options = GetOptions {
        scheme: args.how.scheme.unwrap_or(default_scheme.parse::<Scheme>().map_err(Failure::new)?),
        slice_bytes: args.how.slice_size,
        verify: args.verify,
    };
    let (path, is_new) = match args.out {
        Some(path) => (path, false),
        None => (default_target(&args.name)?, true),
    };
    let found = client.find(&args.name, args.range.unwrap_or(client::ByteRange::ALL)).await?;
    let stdout = match path == Path::new("-") {
        _ if is_new => None,
        true => Some(GetTarget::Stream(Box::new(tokio::io::stdout()))),
        false => is_stdout(&path).then(|| GetTarget::File(path.clone())),
    };
    if let Some(target) = stdout {
        // Stdout carries the file's bytes only; messages go to stderr.
        let got = client.get(&found, &options, target, no_progress()).await?;
        let notes: Vec<String> = garbled(&got).chain(unverified(&got)).collect();
        let answer = if notes.is_empty() { Answer::silent() } else { Answer::note(notes.join("\n")) };
        return Ok(answer.with_exit(exit_of(&got, &options)));
    }
    let bar = Bar::new(&format!("get {}", args.name), found.bytes());
    let start = Instant::now();
    // Another program may have created the file since `default_target` looked.
    let kind = if is_new { GetTarget::NewFile } else { GetTarget::File };
    let got = client.get(&found, &options, kind(path.clone()), bar.progress()).await?;
    drop(bar);
    Ok(Answer::new(got_text(&args.name, &path, &got, start), &got).with_exit(exit_of(&got, &options)))
}

/// Returns the default output path: the last component of the stored name, in the current folder. Another
/// user may have chosen the stored name, so the path must neither exist already nor contain characters that
/// control a terminal.
fn default_target(name: &str) -> Result<PathBuf, Failure> {
    const HELP: &str = "choose the output with -o FILE, or -o - for stdout";
    let path = name.rsplit('/').next().unwrap_or_default();
    if matches!(path, "" | "." | "..") || path.contains(is_obeyed) {
        let text = format!("`{}` contains no file name that is safe to use here", printable(name));
        return Err(Failure::new(text).help(HELP));
    }
    // `symlink_metadata` also finds dangling symbolic links.
    if std::fs::symlink_metadata(path).is_ok() {
        return Err(Failure::new(format!("{path} already exists here")).help(HELP));
    }
    Ok(path.into())
}

/// Whether `path` is the same file as this process's stdout, such as `/dev/stdout`.
pub fn is_stdout(path: &Path) -> bool {
    let stdout = io::stdout().as_fd().try_clone_to_owned().map(File::from).and_then(|file| file.metadata());
    let (Ok(stdout), Ok(path)) = (stdout, std::fs::metadata(path)) else { return false };
    (stdout.dev(), stdout.ino()) == (path.dev(), path.ino())
}

fn got_text(name: &str, path: &Path, got: &Got, start: Instant) -> String {
    let (name, path) = (printable(name), path.display().to_string());
    let mut text =
        format!("got {name}: {} to {}, {}", size(got.bytes), printable(&path), rate(got.bytes, start));
    for reason in &got.replanned {
        text += &format!("\nreplanned: {}", printable(reason));
    }
    for note in garbled(got).chain(unverified(got)) {
        text += &format!("\n{note}");
    }
    text
}

/// Returns a note for each block that arrived with wrong bytes.
fn garbled(got: &Got) -> impl Iterator<Item = String> {
    let note = |block: &String| {
        let block = printable(block);
        format!(
            "block {block} arrived with wrong bytes and was decoded from other blocks; its helper is \
             verifying the block; to verify all blocks, run `mend scrub`"
        )
    };
    got.garbled.iter().map(note)
}

/// Returns the exit code. With `--verify`, a stripe without a spare block to verify against is a failure,
/// although the data itself was read.
fn exit_of(got: &Got, options: &GetOptions) -> Exit {
    if options.verify && got.without_spare() > 0 { Exit::Failed } else { Exit::Done }
}

/// Returns notes on the reads that `--verify` could not verify.
fn unverified(got: &Got) -> impl Iterator<Item = String> {
    let reads = count(got.reads, "read");
    let note =
        |number: u64, why: &str| (number > 0).then(|| format!("not verified ({why}): {number} of {reads}"));
    let in_part = note(got.in_part, "this code's parity covers whole blocks only");
    note(got.without_spare(), "no spare block").into_iter().chain(in_part)
}

fn rate(bytes: u64, start: Instant) -> String {
    let took = start.elapsed();
    format!("{} in {}", format::rate(bytes, took), time(took))
}

/// Implements `mend ls`.
pub async fn ls(client: &Client, args: &LsArgs) -> Result<Answer, Failure> {
    let files = client.files(&args.prefix).await?;
    let text = if args.long {
        table(["name", ">bytes", "code", ">block", ">stripes", "put"], files.iter().map(row))
    } else {
        files.iter().map(|file| format!("{}\n", printable(&file.name))).collect()
    };
    Ok(Answer::new(if files.is_empty() { String::new() } else { text }, &files))
}

fn row(file: &FileView) -> [String; 6] {
    [
        file.name.clone(),
        file.bytes.to_string(),
        file.code.clone(),
        block_size(file.block_bytes, file.chunk_bytes),
        file.stripes.to_string(),
        date(file.created_unix_ms),
    ]
}

/// Implements `mend rm`.
pub async fn rm(client: &Client, args: &RmArgs) -> Result<Answer, Failure> {
    for (done, name) in args.names.iter().enumerate() {
        client.remove(name).await.map_err(|error| {
            let failure = Failure::from(error);
            if done == 0 {
                failure
            } else {
                failure.help(format!("{} removed before this error", count(done as u64, "file")))
            }
        })?;
    }
    let text: String = args.names.iter().map(|name| format!("removed {}\n", printable(name))).collect();
    Ok(Answer::new(text, &serde_json::json!({ "removed": args.names })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_names_become_files_here() {
        for name in ["film-that-is-not-here", "a/b/film-that-is-not-here"] {
            assert_eq!(default_target(name).unwrap(), Path::new("film-that-is-not-here"));
        }
        for name in ["", "/", "a/", ".", "..", "a/..", "a/.", "a\n", "b/\u{1b}[2J", "\u{202e}gpj"] {
            let failure = default_target(name).expect_err(name);
            assert!(failure.message().contains("contains no file name"), "{name:?}: {failure:?}");
        }
        // An existing file is kept.
        assert!(default_target("x/Cargo.toml").unwrap_err().message().contains("exists"));
    }
}
