"""The installed package against a real deployment: wheel_test.sh starts it, in the folder SHOAL_TEST_CHAIN."""

import ast
import asyncio
import contextlib
import gc
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import shoal

CHAIN = pathlib.Path(os.environ["SHOAL_TEST_CHAIN"])


class Case(unittest.TestCase):
    clients = 0

    def config(self, change=lambda text: text):
        """The configuration of a new client, with a state of its own."""
        Case.clients += 1
        text = (CHAIN / "client.textproto").read_text().replace("client.state", f"python-{Case.clients}.state")
        path = CHAIN / f"python-{Case.clients}.textproto"
        path.write_text(change(text))
        return path

    def nobody(self):
        """The configuration of a frontend that nobody runs."""
        return self.config(lambda text: "\n".join(
            'frontend: "127.0.0.1:1"' if line.startswith("frontend") else line for line in text.splitlines()))


class LookupTest(Case):
    def test_pairs_of_key_and_result_in_order(self):
        names = ["key-7", "no-such-key", "key-200", "key-7"]
        with shoal.open(self.config()) as client:
            results = client.lookup(names)
        self.assertEqual([name for name, _ in results], names)
        self.assertEqual([result.value for _, result in results], [b"value 49", None, b"value 40000", b"value 49"])
        self.assertEqual([result.text for _, result in results][0], "value 49")
        self.assertTrue(results[1][1].absent)
        self.assertEqual(results[0][1].outcome, shoal.Outcome.FOUND)
        self.assertEqual((len(results), results.failed), (4, 0))
        self.assertGreater(results.bytes_received, results.bytes_sent)
        self.assertGreater(results.bytes_sent, 0)
        # Neither may end in somebody's log.
        self.assertNotIn("49", repr(results) + repr(results[0]).replace("key-7", ""))

    def test_keys_and_values_are_any_bytes(self):
        with shoal.open(self.config()) as client:
            (found, result), (absent, none) = client.lookup([b"bytes-\xff", b"a\0b"], engine="hintless")
        self.assertEqual((found, result.value), (b"bytes-\xff", b"\xff\0\xfe"))
        self.assertEqual((absent, none.value), (b"a\0b", None))
        with self.assertRaises(UnicodeDecodeError):
            result.text

    def test_text_with_what_nobody_sees_is_no_key(self):
        with shoal.open(self.config()) as client:
            for key in ["key-7\n", "key-7\r", " key-7", "key-7\u00a0", "\ufeffkey-7", "k\0e\0y\0", "key\u200b-7", "key-7\u202c", "key\t7",
                        "key\u00ad-7", "key-\u0085", "\udcff"]:
                with self.subTest(key=ascii(key)), self.assertRaises(shoal.InvalidArgumentError) as refused:
                    client.lookup(["key-7", key], engine="hintless")
                self.assertIn("the key number 1 ", str(refused.exception))
            # As bytes they are taken as they are, and so is text that scripts need.
            results = client.lookup([b"key-7\n", "\u2764\ufe0f", "\u0645\u06cc\u200c\u062e"], engine="hintless")
        self.assertTrue(all(result.absent for _, result in results))

    def test_a_generator_of_keys_and_many(self):
        with shoal.open(self.config()) as client:
            results = client.lookup((f"key-{i}" for i in range(1, 201)), engine="hintless", pad=256)
        self.assertEqual([result.text for _, result in results], [f"value {i * i}" for i in range(1, 201)])

    def test_an_engine_that_is_prepared(self):
        with shoal.open(self.config()) as client:
            said = []
            queries = client.prepare("piano", progress=said.append)
            self.assertGreater(queries, 0)
            # There are two sessions, and then there is nothing to do.
            self.assertEqual(client.prepare("piano"), 2 * queries)
            self.assertEqual(client.prepare("piano"), 2 * queries)
            self.assertEqual(client.lookup(["key-9"], engine="piano")[0][1].value, b"value 81")
            self.assertLess(client.prepare("piano"), 2 * queries)
        self.assertIn(shoal.ProgressKind.COUNT, {one.kind for one in said})

    def test_progress(self):
        said = []
        with shoal.open(self.config()) as client:
            client.lookup(["key-7"], progress=said.append)
        texts = [one.text for one in said]
        self.assertIn("this lookup sends 8 queries, padding included, in 1 round", texts)
        counts = [one for one in said if one.kind is shoal.ProgressKind.COUNT]
        self.assertTrue(any(one.done == one.total > 0 for one in counts))
        waits = [one for one in said if one.kind is shoal.ProgressKind.WAIT]
        self.assertGreater(len(waits), 0)
        for one in waits:
            self.assertTrue(-60 < one.due - time.time() < 2 * 3600, one.due)  # at the latest
        self.assertNotIn("key-7", " ".join(texts))

    def test_several_threads_take_turns_and_other_states_do_not_wait(self):
        found = []
        with shoal.open(self.config()) as one, shoal.open(self.config()) as other:
            def ask(client, number):
                found.append(client.lookup([f"key-{number}"], engine="hintless")[0][1].text)
            threads = [threading.Thread(target=ask, args=(client, number))
                       for number in range(1, 5) for client in (one, other)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(sorted(found), sorted(2 * ["value 1", "value 4", "value 9", "value 16"]))


class ErrorTest(Case):
    def test_configurations(self):
        with self.assertRaises(shoal.NotFoundError) as caught:
            shoal.open("/nonexistent/client.textproto")
        self.assertIn("/nonexistent/client.textproto", str(caught.exception))
        self.assertEqual(caught.exception.code, 5)
        with self.assertRaisesRegex(shoal.NotFoundError, "SHOAL_CONFIG"):
            shoal.open()  # the test has no home
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "client.textproto").write_text("nonsense")
            with self.assertRaises(ValueError):
                shoal.open(folder)

    def test_arguments(self):
        with shoal.open(self.config()) as client:
            for keys, options, error, text in [
                ("key-7", {}, TypeError, r"\[key\]"),
                (b"key-7", {}, TypeError, r"\[key\]"),
                ([7], {}, TypeError, "int"),
                ([], {}, shoal.InvalidArgumentError, "0 keys"),
                ([""], {}, shoal.InvalidArgumentError, "key 1 is empty"),
                (["x" * 4097], {}, shoal.InvalidArgumentError, "4097 bytes"),
                (["x"], {"engine": "nothing"}, shoal.InvalidArgumentError, 'no engine "nothing"'),
                (["x"], {"pad": 8}, shoal.InvalidArgumentError, "for engines"),
                (["x"], {"pad": -1}, ValueError, "2\\^32"),
                (["x"], {"engine": "hintless", "parties": [2**32 + 1]}, ValueError, "2\\^32"),
                (["x"], {"engine": "hintless", "parties": [1, 2]}, shoal.InvalidArgumentError, "takes 1, not 2"),
                (["x"], {"beyond": "all"}, ValueError, "accept-more"),
            ]:
                with self.subTest(text), self.assertRaisesRegex(error, text):
                    client.lookup(keys, **options)
            with self.assertRaises(shoal.NotFoundError):
                client.lookup(["x"], engine="simplepir")  # not signed here
            with self.assertRaises(shoal.InvalidArgumentError):
                client.prepare("hintless")

    def test_a_failed_result_has_no_value(self):
        result = shoal.Result(shoal.Outcome.FAILED, error="row 3: not signed")
        self.assertTrue(result.failed)
        for ask in (lambda: result.value, lambda: result.text):
            with self.assertRaisesRegex(shoal.UnverifiedError, "row 3"):
                ask()

    def test_an_unknown_key_is_not_absent(self):
        result = shoal.Result(shoal.Outcome.UNKNOWN)
        self.assertTrue(result.unknown)
        self.assertFalse(result.absent or result.failed or result.found)
        for ask in (lambda: result.value, lambda: result.text):
            with self.assertRaises(shoal.UnknownKeyError):
                ask()

    def test_parties_that_are_not_the_pinned_ones(self):
        pins = (CHAIN / "pinned.textproto").read_text().splitlines()
        keys = [i for i, line in enumerate(pins) if line.startswith("bls_public_keys_hex")]
        pins[keys[0]], pins[keys[1]] = pins[keys[1]], pins[keys[0]]
        (CHAIN / "other-pins.textproto").write_text("\n".join(pins))
        path = self.config(lambda text: text.replace("pinned.textproto", "other-pins.textproto"))
        with shoal.open(path) as client, self.assertRaises(shoal.UntrustedError):
            client.lookup(["key-7"])

    def test_another_lookup_in_the_same_state(self):
        path = self.config()
        errors = []
        with shoal.open(path) as client, shoal.open(path) as other:
            def ask(_):
                if not errors:
                    try:
                        other.lookup(["key-8"])
                    except shoal.ShoalError as error:
                        errors.append(error)
            client.lookup(["key-7"], progress=ask)
        self.assertIsInstance(errors[0], shoal.BusyError)

    def test_a_closed_client(self):
        client = shoal.open(self.config())
        client.close()
        client.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            client.lookup(["key-7"])

    def test_nothing_is_left_to_the_collector(self):
        # Whoever forgets close() leaves no error behind, under -X dev.
        shoal.open(self.config())
        shoal.Cancellation().cancel()
        gc.collect()


class CancelTest(Case):
    def test_cancelled_in_the_middle_and_taken_up(self):
        with shoal.open(self.config()) as client:
            cancellation = shoal.Cancellation()
            told = threading.Event()
            waits = threading.Thread(target=lambda: told.wait(60) and cancellation.cancel())
            waits.start()

            def tell(said):
                if said.text == "sending 8 queries":
                    told.set()
                    waits.join()
            with self.assertRaises(shoal.CancelledError):
                client.lookup(["key-7"], progress=tell, cancellation=cancellation)
            self.assertTrue(cancellation.cancelled)
            with self.assertRaises(shoal.CancelledError):
                client.lookup(["key-7"], cancellation=cancellation)
            self.assertEqual(client.lookup(["key-7"])[0][1].value, b"value 49")

    def test_what_progress_raises_ends_the_lookup(self):
        class Mine(Exception):
            pass

        def fail(_):
            raise Mine("enough")
        with shoal.open(self.nobody()) as client:
            begin = time.monotonic()
            with self.assertRaisesRegex(Mine, "enough"):
                client.lookup(["key-7"], progress=fail)
            # A frontend that does not answer is waited for a minute.
            self.assertLess(time.monotonic() - begin, 40)

    def test_ctrl_c(self):
        program = "\n".join([
            "import shoal, sys, threading",
            f"client = shoal.open({str(self.nobody())!r})",
            "def tell(said): print(said.text, flush=True)",
            "try:",
            "    client.lookup(['key-7'], progress=tell)",
            "except KeyboardInterrupt:",
            "    print('interrupted, threads left:', threading.active_count() - 1)",
        ])
        with subprocess.Popen([sys.executable, "-X", "dev", "-c", program], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as child:
            for line in child.stdout:
                if "does not answer" in line:
                    child.send_signal(signal.SIGINT)
                    break
            self.assertEqual(child.stdout.read(), "interrupted, threads left: 0\n")
        self.assertEqual(child.returncode, 0)


class AsyncTest(Case):
    def test_lookups_at_the_same_time(self):
        async def ask():
            async with shoal.open_async(self.config()) as one, shoal.open_async(self.config()) as other:
                said = []
                by_chain, by_engine, again = await asyncio.gather(
                    one.lookup(["key-7"], progress=said.append),
                    other.lookup(["key-8", "nobody"], engine="hintless"),
                    other.lookup(["key-9"], engine="hintless"))
                self.assertTrue(said)
                return [result.value for results in (by_chain, by_engine, again) for _, result in results]
        self.assertEqual(asyncio.run(ask()), [b"value 49", b"value 64", None, b"value 81"])

    def test_the_loop_goes_on_meanwhile(self):
        async def ask():
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0.01)
            ticking = asyncio.ensure_future(tick())
            async with shoal.open_async(self.config()) as client:
                await client.lookup(["key-7"])
            ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticking
            return ticks
        self.assertGreater(asyncio.run(ask()), 5)

    def test_a_timeout_ends_the_call_and_frees_the_state(self):
        path = self.nobody()

        async def ask():
            async with shoal.open_async(path) as client:
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.lookup(["key-7"]), 0.5)
        begin = time.monotonic()
        asyncio.run(ask())
        self.assertLess(time.monotonic() - begin, 40)
        self.assertEqual([thread.name for thread in threading.enumerate() if thread.name == "shoal"], [])

    def test_a_cancelled_task(self):
        async def ask():
            async with shoal.open_async(self.config()) as client:
                sending = asyncio.Event()

                def tell(said):
                    if said.text == "obtaining 8 slots" or said.text.startswith("obtaining"):
                        sending.set()
                task = asyncio.ensure_future(client.lookup(["key-7"], progress=tell))
                await sending.wait()
                task.cancel()
                ended = await asyncio.gather(task, return_exceptions=True)
                again = await client.lookup(["key-7"])
                return ended[0], again[0][1].value
        ended, value = asyncio.run(ask())
        # Either it was cancelled, or it had all of its answers first.
        self.assertTrue(isinstance(ended, (asyncio.CancelledError, shoal.Results)), ended)
        self.assertEqual(value, b"value 49")

    def test_errors(self):
        async def ask():
            async with shoal.open_async(self.config()) as client:
                with self.assertRaises(shoal.InvalidArgumentError):
                    await client.lookup([])
                with self.assertRaises(TypeError):
                    await client.lookup("key-7")
                self.assertGreater(await client.prepare("piano"), 0)
        asyncio.run(ask())


class VersionTest(unittest.TestCase):
    def test_package_and_library_are_of_one_version(self):
        self.assertEqual(shoal.__version__, shoal.library_version().replace("-dev", ".dev0"))

    def test_engines(self):
        self.assertEqual(shoal.engines()[0], "chain")
        self.assertIn("piano", shoal.engines())

    def test_the_sources_are_of_python_3_9(self):
        for path in pathlib.Path(shoal.__file__).parent.glob("*.py"):
            ast.parse(path.read_text(), feature_version=(3, 9))

    def test_everything_has_a_docstring(self):
        for name in shoal.__all__:
            if name not in ("Key", "Beyond", "Outcome", "ProgressKind", "__version__"):
                self.assertTrue(getattr(shoal, name).__doc__, name)
        for kind in (shoal.Client, shoal.AsyncClient):
            for name in ("lookup", "prepare"):
                self.assertTrue(getattr(kind, name).__doc__, name)


if __name__ == "__main__":
    unittest.main()
