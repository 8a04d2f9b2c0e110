//! Tests that a failed `mend attach` leaves no cluster folder behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use attached::{Attached, Attaching, Findings, Kind, KindError};
use clap::{ArgMatches, Command};
use cluster::{Cluster, HelperConfig, InitOptions, NewCluster, OwnRepair};
use store_api::{Blocks, SharedRecords, Storage};

/// A kind of store that can only be attached. If `is_occupied`, the path of the records is in use.
struct Bare {
    is_occupied: bool,
}

impl Kind for Bare {
    fn name(&self) -> &'static str {
        "bare"
    }

    fn own_repair(&self, _: &Cluster) -> Result<OwnRepair, KindError> {
        Ok(OwnRepair::Auto)
    }

    fn servers(&self, _: &Cluster) -> Result<BTreeMap<String, String>, KindError> {
        Ok(BTreeMap::new())
    }

    fn storage(&self, _: &Cluster, _: SharedRecords, _: OwnRepair) -> Result<Storage, KindError> {
        Err(KindError::new("it is only attached"))
    }

    fn blocks(&self, _: &Cluster, _: &HelperConfig) -> Result<Arc<dyn Blocks>, KindError> {
        Err(KindError::new("it is only attached"))
    }

    fn command(&self) -> Command {
        Command::new(self.name())
    }

    fn attach<'a>(&'a self, folder: Option<PathBuf>, _: &'a ArgMatches) -> Attaching<'a> {
        Box::pin(async move {
            let options = InitOptions { helpers: 1, ..InitOptions::default() };
            let mut cluster = NewCluster::begin(&folder.expect("the test names it"), &options)?;
            if self.is_occupied {
                fs::write(stores::catalog_path(cluster.unfinished()), "in the way").unwrap();
            }
            let findings = Findings { text: "attached".to_owned(), facts: Default::default() };
            Ok(Attached { cluster, findings })
        })
    }
}

#[tokio::test]
async fn a_cluster_without_records_does_not_appear() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("cluster");
    let attach = async |is_occupied| {
        let kind = Bare { is_occupied };
        let args = kind.command().get_matches_from(["bare"]);
        stores::attach(&kind, Some(folder.clone()), &args).await
    };
    let error = attach(true).await.err().expect("there is no place for the records");
    assert!(error.message.contains("catalog.redb"), "{error}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    assert_eq!(attach(false).await.expect("nothing is in the way").text, "attached");
    assert!(stores::catalog_path(&Cluster::open(&folder).unwrap()).is_file());
}
