"""Balanced: the generating engine computes a share of each prompt itself, so that neither side waits for the other."""

import baton


class Balanced:
    def __init__(self, share=0.2):
        self.share = share

    async def route(self, request, fleet):
        decode = fleet.decode().lowest(lambda engine: engine.sequences)
        prefill = fleet.prefill().pairing_with(decode).lowest(lambda engine: engine.prefill_tokens)
        end = min(int((1 - self.share) * request.prompt_tokens), request.prompt_tokens - 1)
        room = await decode.prep_recv(request, end=end)
        kv = prefill.remote_send(request, to=room)
        return await decode.start_generate(request, room, fed_by=kv)


if __name__ == "__main__":
    baton.Deployment(prefill=1, decode=1, strategy=Balanced()).serve()
