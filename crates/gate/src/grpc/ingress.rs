//! Ingress calls: a pipelined session for each, with replies as protobuf messages.

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
use crate::builder::DoorMount;
use crate::gate::Gate;
use crate::metrics::OpenGuard;
use crate::pipelined_session::{PipelinedSession, SessionSender};

/// Replies queued for a slow peer; when the queue is full, reading stops.
const QUEUED_REPLIES_MAX: usize = 1_024;

/// Authenticated caller of an ingress call.
#[derive(Clone)]
pub(crate) struct Caller {
    sender: SessionSender,
    cutting: CancellationToken,
    /// Connection state that is released when the call ends.
    _held: Arc<dyn Any + Send + Sync>,
}

impl Caller {
    pub(crate) fn new(
        sender: SessionSender,
        cutting: CancellationToken,
        held: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self { sender, cutting, _held: Arc::from(held) }
    }
}

/// Implementation of `admit.v1.Ingress`.
pub(super) struct Ingress {
    gate: Arc<Gate>,
    door: Arc<DoorMount>,
}

impl Ingress {
    pub(super) fn new(gate: Arc<Gate>, door: Arc<DoorMount>) -> Self {
        Self { gate, door }
    }

    fn open_session<T>(
        &self,
        request: &mut Request<T>,
    ) -> Result<(PipelinedSession, Caller), Status> {
        let caller: Caller = request
            .extensions_mut()
            .remove()
            .ok_or_else(|| Status::unauthenticated("the caller is not authenticated"))?;
        let sender = caller.sender.clone();
        Ok((PipelinedSession::new(Arc::clone(&self.gate), Arc::clone(&self.door), sender), caller))
    }
}

type AnswerResult = Result<v1::Answer, Status>;

#[tonic::async_trait]
impl v1::ingress_server::Ingress for Ingress {
    type StreamStream = Pin<Box<dyn Stream<Item = AnswerResult> + Send>>;

    async fn stream(
        &self,
        mut request: Request<Streaming<v1::Envelope>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let (session, caller) = self.open_session(&mut request)?;
        let (answers, mut receiver) = mpsc::channel(QUEUED_REPLIES_MAX);
        let call = StreamCall {
            gate: Arc::clone(&self.gate),
            session,
            envelopes: request.into_inner(),
            answers,
        };
        self.gate.tasks.spawn(async move {
            tokio::select! {
                () = call.run() => {}
                () = caller.cutting.cancelled() => {}
            }
        });
        Ok(Response::new(Box::pin(stream::poll_fn(move |cx| receiver.poll_recv(cx)))))
    }

    async fn submit(
        &self,
        mut request: Request<v1::Envelope>,
    ) -> Result<Response<v1::Answer>, Status> {
        let (mut session, _caller) = self.open_session(&mut request)?;
        let reply = match session.submit(request.into_inner().json) {
            Some(refused) => Some(refused),
            None => session.next_replies().await.pop(),
        };
        let reply = reply.ok_or_else(|| status(Code::InternalError, "the event got no reply"))?;
        answer(&reply).map(Response::new)
    }
}

/// One stream of envelopes and their answers.
struct StreamCall {
    gate: Arc<Gate>,
    session: PipelinedSession,
    envelopes: Streaming<v1::Envelope>,
    answers: mpsc::Sender<AnswerResult>,
}

impl StreamCall {
    /// Reads and replies until the peer ends its stream and every event has a reply.
    async fn run(mut self) {
        let _open = OpenGuard::new(&self.gate, |metrics| &metrics.grpc_streams);
        // Result of the call, once reading has ended.
        let mut ending: Option<Result<(), Status>> = None;
        loop {
            if ending.is_some() && self.session.is_empty() {
                break;
            }
            let is_open = ending.is_none();
            let may_read = is_open && self.session.has_room();
            let replies = tokio::select! {
                biased;
                // The peer is gone; writes handed to the ledger are completed all the same.
                () = self.answers.closed() => return,
                replies = self.session.next_replies(), if !self.session.is_empty() => replies,
                message = self.envelopes.message(), if may_read => {
                    let (replies, ended) = self.on_message(message);
                    ending = ended;
                    replies
                }
                () = self.gate.drain.cancelled(), if is_open => {
                    ending = Some(Err(status(Code::Draining, "the gate is shutting down")));
                    Vec::new()
                }
            };
            for reply in replies {
                if !self.send(answer(&reply)).await {
                    return;
                }
            }
        }
        if let Some(Err(status)) = ending {
            self.send(Err(status)).await;
        }
    }

    /// Handles an envelope, and all further ones that have already arrived.
    fn on_message(
        &mut self,
        message: Result<Option<v1::Envelope>, Status>,
    ) -> (Vec<Reply>, Option<Result<(), Status>>) {
        let mut replies = Vec::new();
        let mut next = Some(message);
        let mut ending = None;
        while let Some(message) = next {
            match message {
                Ok(Some(envelope)) => replies.extend(self.session.submit(envelope.json)),
                Ok(None) => ending = Some(Ok(())),
                Err(status) => ending = Some(Err(status)),
            }
            let may_continue = ending.is_none() && self.session.has_room();
            next = if may_continue { self.envelopes.message().now_or_never() } else { None };
        }
        self.session.start_batch();
        (replies, ending)
    }

    /// Sends an answer to the peer; `false` if that fails or times out.
    async fn send(&mut self, answer: AnswerResult) -> bool {
        let sent = timeout(self.gate.limits.write_max(), self.answers.send(answer)).await;
        matches!(sent, Ok(Ok(())))
    }
}

/// JSON reply of the contract, to be converted to protobuf.
#[derive(Deserialize)]
struct ContractReply {
    event_id: Option<String>,
    #[serde(default)]
    ack_ts: String,
    #[serde(default)]
    nack_ts: String,
    status: String,
    error: Option<ContractReplyError>,
}

#[derive(Deserialize)]
struct ContractReplyError {
    code: String,
    message: String,
    retryable: bool,
}

/// Converts a reply to an answer.
fn answer(reply: &Reply) -> AnswerResult {
    let reply: ContractReply = serde_json::from_slice(&reply.body)
        .map_err(|_| status(Code::InternalError, "cannot convert the reply"))?;
    let ContractReply { event_id, ack_ts, nack_ts, status, error } = reply;
    let answer = match error {
        None => {
            let event_id = event_id.unwrap_or_default();
            v1::answer::Answer::Ack(v1::Ack { event_id, ack_ts, status })
        }
        Some(ContractReplyError { code, message, retryable }) => {
            let error = Some(v1::Error { code, message, retryable });
            v1::answer::Answer::Nack(v1::Nack { event_id, nack_ts, status, error })
        }
    };
    Ok(v1::Answer { answer: Some(answer) })
}
