package mend.client;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Map;

/** The coordinator's HTTP API, as far as a requestor needs it (docs/api.md). */
final class Api {
  private static final Duration CONNECT_LIMIT = Duration.ofSeconds(4);
  private static final int LOCKED = 423;

  private final Address address;
  private final HttpClient http;

  Api(Settings settings) {
    address = settings.api();
    http = HttpClient.newBuilder()
        .version(HttpClient.Version.HTTP_1_1)
        .sslContext(settings.credentials().towards("coordinator.mend"))
        .connectTimeout(CONNECT_LIMIT)
        .build();
  }

  Json.Node get(String path, Duration limit) throws IOException {
    return send(request(path, limit).GET());
  }

  Json.Node post(String path, Map<String, Object> body, Duration limit) throws IOException {
    return send(request(path, limit).header("Content-Type", "application/json")
        .POST(HttpRequest.BodyPublishers.ofByteArray(Json.write(body))));
  }

  Json.Node delete(String path, Duration limit) throws IOException {
    return send(request(path, limit).DELETE());
  }

  private HttpRequest.Builder request(String path, Duration limit) {
    return HttpRequest.newBuilder(URI.create("https://" + address + path)).timeout(limit);
  }

  private Json.Node send(HttpRequest.Builder request) throws IOException {
    HttpResponse<byte[]> response;
    try {
      response = http.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("the request was interrupted");
    } catch (java.net.http.HttpTimeoutException late) {
      throw new MendException(MendException.Kind.UNREACHABLE,
          "the coordinator at " + address + " did not answer in time", late);
    } catch (IOException problem) {
      throw Failures.ofConnection(address, problem);
    }
    if (response.statusCode() / 100 == 2) {
      return response.body().length == 0 ? new Json.Node(null, "the answer") : Json.parseObject(response.body());
    }
    throw refused(response);
  }

  private MendException refused(HttpResponse<byte[]> response) {
    String said;
    try {
      Json.Node body = Json.parseObject(response.body());
      said = body.get("error").text() + "; " + body.get("next_step").text();
    } catch (MendException problem) {
      said = "status " + response.statusCode();
    }
    MendException.Kind kind =
        response.statusCode() == LOCKED ? MendException.Kind.BUSY : MendException.Kind.REFUSED;
    return new MendException(kind, "the coordinator at " + address + " refuses: " + said);
  }
}
