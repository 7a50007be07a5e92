//! The calls themselves: a lane for each, and answers as messages.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

use admit_contracts::Reply;
use admit_core::Code;
use admit_proto::v1;
use futures_util::{FutureExt as _, Stream, stream};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::status;
use crate::gate::Gate;
use crate::lane::{Lane, Sender};
use crate::metrics::OneOpen;
use crate::parts::DoorMount;

/// Answers that may wait for the peer to take them; more of them, and nothing is read.
const ANSWERS_MAX: usize = 1_024;

/// Who calls.
#[derive(Clone)]
pub(crate) struct Caller {
    sender: Sender,
    cutting: CancellationToken,
    /// Dropped when the call ends.
    _held: Arc<dyn Any + Send + Sync>,
}

impl Caller {
    pub(crate) fn new(
        sender: Sender,
        cutting: CancellationToken,
        held: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self { sender, cutting, _held: Arc::from(held) }
    }
}

/// The service.
pub(super) struct Ingress {
    gate: Arc<Gate>,
    door: Arc<DoorMount>,
}

impl Ingress {
    pub(super) fn new(gate: Arc<Gate>, door: Arc<DoorMount>) -> Self {
        Self { gate, door }
    }

    fn lane<T>(&self, request: &mut Request<T>) -> Result<(Lane, Caller), Status> {
        let caller: Caller = request
            .extensions_mut()
            .remove()
            .ok_or_else(|| Status::unauthenticated("nobody knows who calls"))?;
        let sender = caller.sender.clone();
        Ok((Lane::new(Arc::clone(&self.gate), Arc::clone(&self.door), sender), caller))
    }
}

type Answered = Result<v1::Answer, Status>;

#[tonic::async_trait]
impl v1::ingress_server::Ingress for Ingress {
    type StreamStream = Pin<Box<dyn Stream<Item = Answered> + Send>>;

    async fn stream(
        &self,
        mut request: Request<Streaming<v1::Envelope>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let (lane, caller) = self.lane(&mut request)?;
        let (answers, mut receiver) = mpsc::channel(ANSWERS_MAX);
        let call =
            Call { gate: Arc::clone(&self.gate), lane, envelopes: request.into_inner(), answers };
        self.gate.tasks.spawn(async move {
            tokio::select! {
                () = call.converse() => {}
                () = caller.cutting.cancelled() => {}
            }
        });
        Ok(Response::new(Box::pin(stream::poll_fn(move |cx| receiver.poll_recv(cx)))))
    }

    async fn submit(
        &self,
        mut request: Request<v1::Envelope>,
    ) -> Result<Response<v1::Answer>, Status> {
        let (mut lane, _caller) = self.lane(&mut request)?;
        let reply = match lane.take(request.into_inner().json) {
            Some(refused) => Some(refused),
            None => lane.answers().await.pop(),
        };
        let reply = reply.ok_or_else(|| status(Code::InternalError, "the event got no reply"))?;
        answer(&reply).map(Response::new)
    }
}

/// A stream of envelopes and its answers.
struct Call {
    gate: Arc<Gate>,
    lane: Lane,
    envelopes: Streaming<v1::Envelope>,
    answers: mpsc::Sender<Answered>,
}

impl Call {
    /// Reads and answers until the peer has said all it wants and everything is answered.
    async fn converse(mut self) {
        let _open = OneOpen::new(&self.gate, |metrics| &metrics.grpc_streams);
        // How the call ends, once nothing more is read.
        let mut ending: Option<Result<(), Status>> = None;
        loop {
            if ending.is_some() && self.lane.is_empty() {
                break;
            }
            let is_open = ending.is_none();
            let may_read = is_open && self.lane.has_room();
            let replies = tokio::select! {
                biased;
                // Nobody is left to answer; what the ledger has is finished all the same.
                () = self.answers.closed() => return,
                replies = self.lane.answers(), if !self.lane.is_empty() => replies,
                message = self.envelopes.message(), if may_read => {
                    let (replies, ended) = self.heard_of(message);
                    ending = ended;
                    replies
                }
                () = self.gate.drain.cancelled(), if is_open => {
                    ending = Some(Err(status(Code::Draining, "the gate is shutting down")));
                    Vec::new()
                }
            };
            for reply in replies {
                if !self.say(answer(&reply)).await {
                    return;
                }
            }
        }
        if let Some(Err(status)) = ending {
            self.say(Err(status)).await;
        }
    }

    /// Takes an envelope, and whatever else has arrived with it.
    fn heard_of(
        &mut self,
        message: Result<Option<v1::Envelope>, Status>,
    ) -> (Vec<Reply>, Option<Result<(), Status>>) {
        let mut replies = Vec::new();
        let mut next = Some(message);
        let mut ending = None;
        while let Some(message) = next {
            match message {
                Ok(Some(envelope)) => replies.extend(self.lane.take(envelope.json)),
                Ok(None) => ending = Some(Ok(())),
                Err(status) => ending = Some(Err(status)),
            }
            let goes_on = ending.is_none() && self.lane.has_room();
            next = if goes_on { self.envelopes.message().now_or_never() } else { None };
        }
        self.lane.send_off();
        (replies, ending)
    }

    /// Hands an answer to the peer; `false` when it does not take any.
    async fn say(&mut self, answer: Answered) -> bool {
        let sent = timeout(self.gate.limits.write_max(), self.answers.send(answer)).await;
        matches!(sent, Ok(Ok(())))
    }
}

/// What a contract says, as this wire carries it.
#[derive(Deserialize)]
struct Said {
    event_id: Option<String>,
    #[serde(default)]
    ack_ts: String,
    #[serde(default)]
    nack_ts: String,
    status: String,
    error: Option<SaidError>,
}

#[derive(Deserialize)]
struct SaidError {
    code: String,
    message: String,
    retryable: bool,
}

/// The message for a reply.
fn answer(reply: &Reply) -> Answered {
    let said: Said = serde_json::from_slice(&reply.body)
        .map_err(|_| status(Code::InternalError, "the answer could not be written"))?;
    let Said { event_id, ack_ts, nack_ts, status, error } = said;
    let answer = match error {
        None => {
            let event_id = event_id.unwrap_or_default();
            v1::answer::Answer::Ack(v1::Ack { event_id, ack_ts, status })
        }
        Some(SaidError { code, message, retryable }) => {
            let error = Some(v1::Error { code, message, retryable });
            v1::answer::Answer::Nack(v1::Nack { event_id, nack_ts, status, error })
        }
    };
    Ok(v1::Answer { answer: Some(answer) })
}
