"""A router written for MLC's microserving: engine 0 computes prompts, engines 1 and 2 generate in turn."""

from baton import CompletionRequest, PrepRecvRequest, RemoteSendRequest, Router, StartGenerateRequest
from baton.interface.router import serve


class CustomRouter(Router):
    turn = 0

    async def translate_request(self, request: CompletionRequest, request_id: str):
        request.user = request_id
        self.turn += 1
        decode = 1 + self.turn % 2
        decode_start = len(request.prompt) - 1
        prep_recv = PrepRecvRequest(**request.model_dump(), end=decode_start)
        kv_addr_info, matched = await self.send_prepare_receive(None, prep_recv, self.server_urls[decode])
        remote_send = RemoteSendRequest(
            **request.model_dump(),
            begin=matched,
            end=decode_start,
            kv_addr_info=kv_addr_info,
            recv_rank=self.device_id_starts[decode],
        )
        await self.send_remote_send(None, remote_send, self.server_urls[0])
        start_generate = StartGenerateRequest(**request.model_dump(), begin=decode_start)
        async for response in self.send_start_generate(None, start_generate, self.server_urls[decode]):
            if response.choices and response.choices[0].finish_reason == "preempt":
                yield None
            yield response


serve(
    model="storyteller-11m",
    model_lib=None,
    router_host="127.0.0.1",
    router_port=9123,
    endpoint_hosts=["127.0.0.1", "127.0.0.1", "127.0.0.1"],
    endpoint_ports=[9124, 9125, 9126],
    endpoint_num_gpus=[2, 2, 2],
    enable_prefix_cache=False,
    router_type=CustomRouter,
)
