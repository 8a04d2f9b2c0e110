//! Verbs on files: put, get, ls, rm.

use std::path::{Path, PathBuf};

use client::{Client, FileView, GetOptions, GetTarget, Got, PutOptions, no_progress};
use repair::Scheme;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::args::{GetArgs, LsArgs, PutArgs, RmArgs};
use crate::failure::Failure;
use crate::format::{count, date, size, table, time};
use crate::progress::Bar;

/// `mend put`
pub async fn put(client: &Client, args: PutArgs) -> Result<Answer, Failure> {
    let name = match args.name {
        Some(name) => name,
        None => file_name(&args.file)?,
    };
    let options = PutOptions {
        code: args.code.map(|code| code.to_string()),
        block_bytes: args.block_size.map(|size| size.bytes()),
        replace: args.replace,
    };
    let bytes = std::fs::metadata(&args.file).map_or(0, |found| found.len());
    let bar = Bar::new(&format!("put {name}"), bytes);
    let start = Instant::now();
    let file = client.put(&args.file, &name, &options, bar.progress()).await?;
    drop(bar);
    let text = format!(
        "put {}: {} in {} of {}, {}",
        file.name,
        size(file.bytes),
        count(file.stripes, "stripe"),
        file.code,
        rate(file.bytes, start)
    );
    Ok(Answer::new(text, &file))
}

fn file_name(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    name.ok_or_else(|| {
        Failure::new(format!("{} gives no name to store it under", path.display())).help("use --as NAME")
    })
}

/// `mend get`
pub async fn get(client: &Client, args: GetArgs, default_scheme: &str) -> Result<Answer, Failure> {
    let options = GetOptions {
        range: args.range.unwrap_or(client::ByteRange::ALL),
        scheme: args.how.scheme.unwrap_or(default_scheme.parse::<Scheme>().map_err(Failure::new)?),
        slice_bytes: args.how.slice_size,
    };
    if args.out.as_deref() == Some(Path::new("-")) {
        let target = GetTarget::Stream(Box::new(tokio::io::stdout()));
        client.get(&args.name, &options, target, no_progress()).await?;
        return Ok(Answer::silent());
    }
    let path = match args.out {
        Some(path) => path,
        None => default_target(&args.name)?,
    };
    let bar = Bar::new(&format!("get {}", args.name), client.get_bytes(&args.name, options.range).await?);
    let start = Instant::now();
    let got = client.get(&args.name, &options, GetTarget::File(path.clone()), bar.progress()).await?;
    drop(bar);
    Ok(Answer::new(got_text(&args.name, &path, &got, start), &got))
}

/// The file's own name in this folder. A file that is there is overwritten only if it was named.
fn default_target(name: &str) -> Result<PathBuf, Failure> {
    let path = Path::new(name).file_name().map(PathBuf::from);
    let path =
        path.ok_or_else(|| Failure::new(format!("`{name}` cannot be a file here")).help("use -o FILE"))?;
    if path.exists() {
        let text = format!("{} exists here already", path.display());
        return Err(Failure::new(text).help("say where it shall go with -o FILE, or -o - for stdout"));
    }
    Ok(path)
}

fn got_text(name: &str, path: &Path, got: &Got, start: Instant) -> String {
    let mut text =
        format!("got {name}: {} to {}, {}", size(got.bytes), path.display(), rate(got.bytes, start));
    for reason in &got.replanned {
        text += &format!("\nplanned anew on the way: {reason}");
    }
    text
}

fn rate(bytes: u64, start: Instant) -> String {
    let took = start.elapsed();
    format!("{}/s in {}", size((bytes as f64 / took.as_secs_f64().max(1e-6)) as u64), time(took))
}

/// `mend ls`
pub async fn ls(client: &Client, args: &LsArgs) -> Result<Answer, Failure> {
    let files = client.files(&args.prefix).await?;
    let text = if args.long {
        table(["name", ">bytes", "code", ">block", ">stripes", "put"], files.iter().map(row))
    } else {
        files.iter().map(|file| format!("{}\n", file.name)).collect()
    };
    Ok(Answer::new(if files.is_empty() { String::new() } else { text }, &files))
}

fn row(file: &FileView) -> [String; 6] {
    [
        file.name.clone(),
        file.bytes.to_string(),
        file.code.clone(),
        size(file.block_bytes),
        file.stripes.to_string(),
        date(file.created_unix_ms),
    ]
}

/// `mend rm`
pub async fn rm(client: &Client, args: &RmArgs) -> Result<Answer, Failure> {
    for (done, name) in args.names.iter().enumerate() {
        client.remove(name).await.map_err(|error| {
            let failure = Failure::from(error);
            if done == 0 {
                failure
            } else {
                failure.help(format!("{} before it were removed", count(done as u64, "file")))
            }
        })?;
    }
    let text: String = args.names.iter().map(|name| format!("removed {name}\n")).collect();
    Ok(Answer::new(text, &serde_json::json!({ "removed": args.names })))
}
