package mend.client;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.time.Duration;
import java.util.Map;
import javax.net.ssl.SSLContext;

/** The part of the coordinator's HTTP API that a requestor needs (docs/reference/api.md). */
final class Api {
  private static final Duration CONNECT_LIMIT = Duration.ofSeconds(4);
  private static final int LOCKED = 423;

  private final Address address;
  private final Credentials credentials;
  private SSLContext context;
  private HttpClient http;

  Api(Settings settings) {
    address = settings.api();
    credentials = settings.credentials();
  }

  /** Returns the client for the next request: another one if our certificate was renewed. */
  private HttpClient http() {
    credentials.refresh(); // Outside the monitor, because the folder of the certificate may not answer.
    return current();
  }

  private synchronized HttpClient current() {
    SSLContext current = credentials.towards("coordinator.mend");
    if (current != context) {
      context = current;
      http = HttpClient.newBuilder()
          .version(HttpClient.Version.HTTP_1_1)
          .sslContext(current)
          .connectTimeout(CONNECT_LIMIT)
          .build();
    }
    return http;
  }

  Json.Node get(String path, Duration limit) throws IOException {
    return answer(request(path, limit).GET().build());
  }

  /** Sends a POST request that must not be repeated. */
  Json.Node post(String path, Map<String, Object> body, Duration limit) throws IOException {
    return answer(posting(path, body, limit));
  }

  /** Sends an idempotent POST request, and repeats it once if the connection closes. */
  Json.Node tell(String path, Map<String, Object> body, Duration limit) throws IOException {
    return answerAtLast(posting(path, body, limit));
  }

  Json.Node delete(String path, Duration limit) throws IOException {
    return answerAtLast(request(path, limit).DELETE().build());
  }

  private HttpRequest posting(String path, Map<String, Object> body, Duration limit) throws IOException {
    return request(path, limit).header("Content-Type", "application/json")
        .POST(HttpRequest.BodyPublishers.ofByteArray(Json.write(body))).build();
  }

  private HttpRequest.Builder request(String path, Duration limit) {
    return HttpRequest.newBuilder(URI.create("https://" + address + path)).timeout(limit);
  }

  private Json.Node answer(HttpRequest request) throws IOException {
    try {
      return read(send(request));
    } catch (IOException problem) {
      throw failure(problem);
    }
  }

  /**
   * Sends a request, and repeats it once if the connection closes. The coordinator closes idle connections,
   * which may happen just as a request is sent. The JDK itself repeats only GET requests.
   */
  private Json.Node answerAtLast(HttpRequest request) throws IOException {
    HttpResponse<byte[]> response;
    try {
      response = send(request);
    } catch (HttpTimeoutException | ConnectException | InterruptedIOException problem) {
      throw failure(problem);
    } catch (IOException problem) {
      return answer(request);
    }
    return read(response);
  }

  private HttpResponse<byte[]> send(HttpRequest request) throws IOException {
    try {
      return http().send(request, HttpResponse.BodyHandlers.ofByteArray());
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("the request was interrupted");
    }
  }

  private IOException failure(IOException problem) {
    if (problem instanceof InterruptedIOException) {
      return problem;
    }
    if (problem instanceof HttpTimeoutException) {
      return new MendException(MendException.Kind.UNREACHABLE,
          "the coordinator at " + address + " did not answer in time", problem);
    }
    return Failures.ofConnection(address, problem);
  }

  private Json.Node read(HttpResponse<byte[]> response) throws IOException {
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
