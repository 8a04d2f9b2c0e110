//! Checks that `src/generated` matches the .proto files. `MEND_REGENERATE=1` rewrites the code.

use std::fs;
use std::path::Path;

#[test]
fn the_generated_code_matches_the_protos() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["master.proto", "volume_server.proto"];
    let descriptors = protox::compile(files, [root.join("proto")]).expect("valid .proto files");
    let folder = tempfile::tempdir().expect("a temporary folder");
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .btree_map(".")
        .out_dir(folder.path())
        .compile_fds(descriptors)
        .expect("generated");
    for package in ["master_pb.rs", "volume_server_pb.rs"] {
        let made = fs::read_to_string(folder.path().join(package)).expect("generated");
        let kept = root.join("src/generated").join(package);
        if std::env::var_os("MEND_REGENERATE").is_some() {
            fs::write(&kept, &made).expect("written");
        }
        let kept = fs::read_to_string(&kept).unwrap_or_default();
        assert!(made == kept, "{package} is old: MEND_REGENERATE=1 cargo test -p seaweedfs --test generated");
    }
}
