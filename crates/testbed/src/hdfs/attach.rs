//! Attaches Mend to the HDFS cluster.

use std::fs;
use std::path::Path;

use crate::{AttachCommand, Mend};

use super::cluster::Cluster;

/// Options for attaching Mend.
#[derive(Clone, Debug)]
pub struct Attaching<'a> {
    /// Path of the program `mend`.
    pub program: &'a Path,
    /// Further arguments of `mend attach hdfs`, such as `--repair-after` and its value.
    pub arguments: &'a [&'a str],
    /// Whether the coordinator queries the NameNode. If not, it learns of stripes only from the DataNodes'
    /// plug-ins, which describe them.
    pub asks_namenode: bool,
}

impl Cluster {
    /// Attaches Mend, and starts its coordinator and helpers.
    ///
    /// # Panics
    /// If `mend attach` fails.
    pub fn attach(&self, attaching: &Attaching<'_>) -> Mend {
        let (uri, classpath) = (self.uri(), self.classpath());
        let arguments = ["hdfs", "--namenode", &uri, "--classpath", &classpath];
        let mut mend = Mend::attach(AttachCommand {
            program: attaching.program,
            arguments: arguments.iter().chain(attaching.arguments).map(|&word| word.to_owned()).collect(),
            names: self.nodes().iter().map(|node| name(&node.address())).collect(),
            ground: self.ground(),
            root: self.folder(),
        });
        configure(self, &mend.folder().join("mend.toml"), attaching.asks_namenode);
        mend.start();
        mend
    }
}

/// Issues a certificate for HDFS's plug-in, and copies it and the CA certificate to the folder where HDFS
/// expects them.
///
/// # Panics
/// If `mend issue` or copying fails.
pub fn issue_plugin(mend: &Mend, folder: &Path) {
    let issued = mend.run(&["issue", "plugin", "hdfs"]);
    assert!(issued.status.success(), "{}", String::from_utf8_lossy(&issued.stderr));
    for file in ["ca/ca.pem", "plugins/hdfs/cert.pem", "plugins/hdfs/key.pem"] {
        let to = folder.join(file);
        fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        fs::copy(mend.folder().join(file), to).expect("copied");
    }
}

/// Returns the name that `mend attach` gives the helper of a DataNode.
fn name(address: &str) -> String {
    format!("dn-{}", address.replace(['.', ':'], "-"))
}

/// Gives each DataNode's plug-in its own port in `mend.toml`, because all DataNodes may share one address. Shortens the
/// wait for replicas to settle, because heartbeats are frequent. If `asks_namenode` is false, also removes the section
/// `[store.namenode]`.
fn configure(cluster: &Cluster, path: &Path, asks_namenode: bool) {
    let mut text = fs::read_to_string(path).expect("its configuration");
    for node in cluster.nodes() {
        let before = format!("datanode = \"{}\"\nplugin_port = 7410", node.address());
        let after =
            format!("datanode = \"{}\"\nplugin_port = {}", node.address(), node.plugin_address().port());
        text = text.replace(&before, &after);
    }
    text = text.replace("[store.raid]\n", "[store.raid]\nsettled_after = \"3s\"\n");
    if !asks_namenode {
        let from = text.find("[store.namenode]").expect("a table");
        let keys = text[from..].lines().skip(1).take_while(|line| line.contains('='));
        let bytes = keys.map(|line| line.len() + 1).sum::<usize>() + "[store.namenode]\n".len();
        text.replace_range(from..from + bytes, "");
    }
    fs::write(path, text).expect("written");
}
