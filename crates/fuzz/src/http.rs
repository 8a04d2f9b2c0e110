//! Bodies of API requests and responses.

use std::fmt::Debug;

use client::{ByteRange, FileLayout};
use serde::Serialize;
use serde::de::DeserializeOwned;
use views::{
    BlockPlace, CapsRequest, ErrorBody, FileView, NodeView, PlanRequestView, PlanView, PutRequest, PutView,
    RepairRequest, RepairView, ScrubView, Status, StripeView,
};

pub(crate) fn request(bytes: &[u8]) -> bool {
    let put = body::<PutRequest>(bytes).is_some();
    let repair = body::<RepairRequest>(bytes).is_some();
    let plan = body::<PlanRequestView>(bytes).is_some();
    let caps = body::<CapsRequest>(bytes).is_some();
    put || repair || plan || caps
}

pub(crate) fn answer(bytes: &[u8]) -> bool {
    let layout = body::<FileLayout>(bytes);
    if let Some(layout) = &layout {
        for range in [ByteRange::ALL, ByteRange::new(1000..70_000)] {
            let _ = client::fuzzing::plan_reads(layout, range);
        }
    }
    let files = body::<Vec<FileView>>(bytes).is_some();
    let nodes = body::<Vec<NodeView>>(bytes).is_some();
    let place = body::<BlockPlace>(bytes).is_some() || body::<StripeView>(bytes).is_some();
    let status = body::<Status>(bytes).is_some();
    let works = body::<RepairView>(bytes).is_some() || body::<ScrubView>(bytes).is_some();
    let plan = body::<PlanView>(bytes).is_some() || body::<PutView>(bytes).is_some();
    let error = body::<ErrorBody>(bytes).is_some();
    layout.is_some() || files || nodes || place || status || works || plan || error
}

fn body<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let body: T = serde_json::from_slice(bytes).ok()?;
    let encoded = serde_json::to_vec(&body).expect("bodies have string keys");
    assert_eq!(serde_json::from_slice::<T>(&encoded).expect("what we encode can be decoded"), body);
    Some(body)
}
