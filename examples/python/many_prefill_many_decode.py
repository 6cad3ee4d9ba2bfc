"""xPyD: any number of engines of each kind; each request takes the one with the least to do."""

import baton


class ManyPrefillManyDecode:
    async def route(self, request, fleet):
        decode = fleet.decode().lowest(lambda engine: engine.sequences)
        prefill = fleet.prefill().pairing_with(decode).lowest(lambda engine: engine.prefill_tokens)
        room = await decode.prep_recv(request, end=-1)
        kv = prefill.remote_send(request, to=room)
        return await decode.start_generate(request, room, fed_by=kv)


if __name__ == "__main__":
    baton.Deployment(prefill=2, decode=2, strategy=ManyPrefillManyDecode()).serve()
